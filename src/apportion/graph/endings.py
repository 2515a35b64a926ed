"""Which dimensions tell that an episode ends by itself. An end takes all later rewards away, so the policy
has to see it coming, even where none of these dimensions feeds the reward."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ks_2samp

FEWEST = 30  # ends; fewer cannot be told from chance
SIGNIFICANT = 0.001  # over all dimensions together
MAX_OTHERS = 10_000  # states to compare with


def ending_dimensions(
    observations: list[NDArray[Any]], terminated: NDArray[np.bool_], seed: int = 0
) -> NDArray[np.bool_]:
    """Dimensions [S] whose values where an episode ended are distributed unlike elsewhere (two-sample
    Kolmogorov-Smirnov test). From segments: observations [T+1, S] of each, and whether it ended by itself.

    None where nothing ended, all where too little did. More than the causes is found: what moves with a cause
    differs, too. For a policy, seeing too much is the smaller mistake.
    """
    states = observations[0].shape[1]
    ends = [each[-1] for each, end in zip(observations, terminated, strict=True) if end]
    if len(ends) < FEWEST:
        return np.full(states, len(ends) > 0)
    last, others = np.stack(ends), np.concatenate([each[:-1] for each in observations])
    if len(others) > MAX_OTHERS:
        others = others[np.random.default_rng(seed).choice(len(others), MAX_OTHERS, replace=False)]
    level = SIGNIFICANT / states
    return np.array(
        [ks_2samp(last[:, d], others[:, d], method="asymp").pvalue < level for d in range(states)]
    )
