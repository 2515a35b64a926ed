"""What the search for edges believes before any data, and what it calls small: every number that decides."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

SURE = 0.8  # a verdict needs this probability; below, it is "undecided"
DOUBT = 0.1  # the chance of what no test here shows: a cause that no product of two shows, or another instead
OF_REST = DOUBT  # share of what is still unexplained that counts, however little that is
PARENTS = 3  # dimensions that feed the reward before any data: so many draws from all, perhaps the same twice
NEGLIGIBLE = 0.01  # share of a variance, where nobody says another
UNSURE = SURE - NEGLIGIBLE  # the most that is known of a dimension for which another may stand
WORTH = NEGLIGIBLE / 10  # share of a variance that an edge must be worth to count
MISFIT = WORTH / 10  # share of the variance that features may miss of a curve: to explain that is no evidence
ALIKE = 0.5  # of the variance of one dimension, that another shares which may stand in its place
CHANCE = 2.0  # standard errors of a gain on segments left out that chance may bring
ROUNDING = 1e-12  # what is left of 1 where all of it is taken
ROUNDED = ROUNDING**0.5  # what is left of its square root
TINY = float(np.finfo(np.float64).tiny / np.finfo(np.float64).eps)  # by which one may still divide
MOST = 8  # dimensions that come in one by one, or leave; rivals of a parent; that have products of three
RICH = 2 * MOST  # dimensions: of more, interactions are too many to tell apart, and none is added
ENOUGH_SEGMENTS = 150  # below, edges are not to be trusted


def chance_of_each(share: NDArray[np.float64] | float) -> Any:
    """The prior probability of dimensions to feed the reward, of which a draw falls on each so often."""
    return np.minimum(1 - DOUBT, 1 - (1 - np.minimum(share, 1.0)) ** PARENTS)
