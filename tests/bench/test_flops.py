"""Operations are counted in the program itself: right where the answer is known, and as XLA counts them."""

import itertools
from dataclasses import replace

import jax.numpy as jnp
import pytest

from lib import flops, workload
from lib.workload import Size

pytestmark = pytest.mark.slow


def test_a_product_is_two_operations_for_each_pair() -> None:
    assert flops.products(jnp.matmul, jnp.zeros((3, 5)), jnp.zeros((5, 7))) == 2 * 3 * 5 * 7


def mlp(rows: int, sizes: tuple[int, ...], passes: int, to_inputs: bool) -> int:
    """By formula: forward, and backward to the weights (2 passes) and to each layer's inputs (3)."""
    products = [2 * rows * i * o for i, o in itertools.pairwise(sizes)]
    skipped = products[0] if passes == 3 and not to_inputs else 0
    return passes * sum(products) - skipped


@pytest.mark.parametrize("size", [Size(17, 6), Size(5, 2)])
def test_an_update_of_grd_and_sac_has_the_products_of_its_formula(size: Size) -> None:
    """M T rows of reward network, B S of dynamics, B of the policy's networks, each forward and backward."""
    states, actions = size
    inputs, batch = states + actions, 256
    # Edges get a gradient too, so the first layers are differentiated by their (masked) inputs as well.
    reward = mlp(4 * 1000, (inputs, 256, 256, 1), 3, to_inputs=True)
    # The first layer masks weights instead, one set for each target: inputs need no gradient.
    dynamics = 2 * 2 * batch * inputs * states * 256 + mlp(batch * states, (256, 256, 9), 3, to_inputs=True)
    policy = (inputs, 256, 256, 1), (states, 256, 256, 2 * actions)
    critics = 2 * (mlp(batch, policy[0], 1, True) + mlp(batch, policy[0], 3, to_inputs=False))
    actor = mlp(batch, policy[1], 1, True) + mlp(batch, policy[1], 3, to_inputs=False)
    # The actor's loss goes through both critics: forward, and back to the inputs but not to the weights.
    through = 2 * mlp(batch, policy[0], 2, to_inputs=True)
    rewards = mlp(batch, policy[0], 1, True)
    expected = reward + dynamics + critics + actor + through + rewards

    config = replace(workload.settings("grd", workload.PUBLISHED, updates=3), normalise=False)
    work = workload.shapes(config, workload.made_up_spec(size))
    counted = flops.products(work.program, *work.arguments) / work.updates
    assert counted == pytest.approx(
        expected, rel=1e-3
    )  # the rest: which dimensions have a path to the reward


@pytest.mark.parametrize("structure", ["gradient", "closed-form"])
def test_xla_counts_the_same_and_a_little_more(structure: str) -> None:
    """A little: the work element by element."""
    config = workload.settings("grd", replace(workload.PUBLISHED, structure=structure), updates=1)
    work = workload.shapes(config, workload.made_up_spec(Size(17, 6)))
    by_xla = work.program.lower(*work.arguments).cost_analysis()["flops"]
    assert 1.0 <= by_xla / flops.products(work.program, *work.arguments) < 1.15
