"""The checks of annotated shapes, made once for each signature."""

from collections.abc import Callable
from typing import Any, get_args, get_origin

import beartype as _beartype
from jaxtyping import AbstractArray

_known: dict[Any, tuple[Callable[..., Any], Any]] = {}


def beartype(stub: Callable[..., Any]) -> Callable[..., Any]:
    """What beartype makes of a function that does nothing but have a signature, as jaxtyping asks for it.

    Methods and backbones are closures: each time that one is made, the same signatures come again. To write
    the checks of one takes beartype a millisecond or two, which was a tenth of what the tests take.
    """
    defaults = (*(stub.__defaults__ or ()), *(stub.__kwdefaults__ or {}).values())
    key = (
        (stub.__module__, stub.__qualname__, stub.__code__),
        tuple((name, _said(hint)) for name, hint in stub.__annotations__.items()),
        tuple(map(id, defaults)),  # some are arrays, which have no hash
    )
    if key not in _known:
        _known[key] = _beartype.beartype(stub), defaults  # kept, or others might get their place in memory
    return _known[key][0]


def _said(hint: Any) -> Any:
    """The same for annotations that ask for the same: jaxtyping makes a class of each that it meets."""
    if isinstance(hint, list | tuple):  # the arguments of a Callable
        return tuple(map(_said, hint))
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return hint.dtype, _said(hint.array_type), hint.dim_str
    parts = get_args(hint)
    return (get_origin(hint), _said(parts)) if parts else hint
