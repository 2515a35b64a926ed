"""Shapes are checked in every closure, though the checks of a signature are written only once."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest
from jaxtyping import Array, Float, TypeCheckError, jaxtyped

import checking
from apportion.methods import rd
from builders import SPEC


def _make(kind: Any, dims: str) -> Callable[[Any, Any], Any]:
    @jaxtyped(typechecker=checking.beartype)
    def add(x: kind[Array, dims], y: kind[Array, dims] | None = None) -> kind[Array, dims]:
        return x if y is None else y

    return add


def test_closures_with_the_same_annotations_share_their_checks_and_keep_their_own_insides() -> None:
    before = len(checking._known)
    adders = [_make(Float, "B S") for _ in range(3)]
    assert len(checking._known) == before + 2  # of the parameters, and with what is returned
    for add in adders:
        assert add(jnp.ones((2, 3)), None).shape == (2, 3)
        with pytest.raises(TypeCheckError):
            add(jnp.ones((2, 3)), jnp.ones((2, 4)))
        with pytest.raises(TypeCheckError):
            add(jnp.ones(2), None)


def test_other_annotations_in_the_same_place_are_other_checks() -> None:
    flat = _make(Float, "B")
    _make(Float, "B S")(jnp.ones((2, 3)), None)
    assert flat(jnp.ones(2), None).shape == (2,)
    with pytest.raises(TypeCheckError):
        flat(jnp.ones((2, 3)), None)


def test_a_method_is_checked_however_often_it_was_made() -> None:
    for _ in range(3):
        with pytest.raises(TypeCheckError):
            rd.make(rd.Config()).init(3, SPEC)
