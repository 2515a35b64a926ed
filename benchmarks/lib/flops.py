"""Arithmetic: how much of it a program asks for, and how much the machine can do.

Counted are the matrix products, 2 M N K each, in the program as JAX traces it: the same on every machine.
XLA's own count adds the work element by element, but takes a loop's body once.
"""

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr

from lib import timing

PEAK_SIDE = {"cpu": 1024, "gpu": 8192}  # of the square matrices whose product is the machine's peak


def products(program: Any, *arguments: Any) -> int:
    """Floating point operations in all matrix products of one call of a jitted program; arguments may be
    shapes only."""
    return _in_jaxpr(program.trace(*arguments).jaxpr)


def peak(dtype: str = "float32", seconds: float = 1.0, side: int | None = None) -> float:
    """Operations per second in the product of two large square matrices: the best of several."""
    side = side or PEAK_SIDE.get(jax.default_backend(), 4096)
    matrix = jax.random.normal(jax.random.key(0), (side, side), jnp.dtype(dtype))
    product = jax.jit(jnp.matmul)
    product(matrix, matrix).block_until_ready()
    taken = timing.repeated(lambda: product(matrix, matrix).block_until_ready(), seconds)
    return 2 * side**3 / min(taken)


def _in_jaxpr(jaxpr: Any) -> int:
    return sum(_in_equation(equation) for equation in jaxpr.eqns)


def _in_equation(equation: Any) -> int:
    """A loop counts as often as it runs, once if that is not known; of branches the largest."""
    if equation.primitive.name == "dot_general":
        return _of_product(equation)
    inner = [_in_jaxpr(jaxpr) for jaxpr in _jaxprs(equation.params)]
    if equation.primitive.name == "cond":
        return max(inner, default=0)
    return sum(inner) * equation.params.get("length", 1)


def _of_product(equation: Any) -> int:
    (contracted, _), _ = equation.params["dimension_numbers"]
    left = equation.invars[0].aval.shape
    return 2 * math.prod(equation.outvars[0].aval.shape) * math.prod(left[axis] for axis in contracted)


def _jaxprs(params: dict[str, Any]) -> Iterator[Any]:
    for value in params.values():
        for each in value if isinstance(value, tuple | list) else (value,):
            if isinstance(each, ClosedJaxpr):
                yield each.jaxpr
            elif isinstance(each, Jaxpr):
                yield each
