"""What the search for edges believes before any data, and what it calls small: every number that decides."""

SURE = 0.8  # a verdict needs this probability; below, it is "undecided"
UNSURE = SURE - 0.01  # the most that is known of a dimension for which another may stand
DOUBT = 0.1  # the chance of what no test here shows: a cause that no product of two shows, or another instead
RELEVANT = 0.3  # prior probability of a dimension to feed the reward, where absence is asked for
PARENTS = 3.0  # dimensions that are expected to feed the reward; but at most half of them
WORTH = 1e-3  # share of a variance that an edge must be worth to count,
OF_REST = 0.2  # or of what is still unexplained, however little that is
MISFIT = WORTH / 10  # share of the variance that features may miss of a curve: to explain that is no evidence
ALIKE = 0.5  # of the variance of one dimension, that another shares which may stand in its place
CHANCE = 2.0  # standard errors of a gain on segments left out that chance may bring
ROUNDING = 1e-12  # what is left of 1 where all of it is taken
ENOUGH_SEGMENTS = 150  # below, edges are not to be trusted
