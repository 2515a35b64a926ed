"""GRD, Generative Return Decomposition (Zhang et al., NeurIPS 2023): the paper's equations 2 and 4 to 7.

Two ways to the causal graph under one name. As published: reward and dynamics networks whose inputs pass
sampled edges, learned with them by gradient. In closed form: edges by regression on all episodes so far.
Policies see the dimensions with a path to the reward, or to the end of an episode.
"""

from apportion.core.types import Method
from apportion.methods.grd import closed_form, published
from apportion.methods.grd.parts import Config as Config


def make(config: Config) -> Method:
    """GRD as its `structure` says."""
    return closed_form.make(config) if config.structure == "closed-form" else published.make(config)
