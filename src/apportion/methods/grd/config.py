"""GRD's settings."""

from dataclasses import dataclass
from typing import Literal

from apportion.core.config import check


@dataclass(frozen=True)
class Config:
    """GRD: reward and dynamics networks behind learned causal edges."""

    sparsity: tuple[float, float, float, float, float] = (1e-5, 1e-5, 1e-5, 1e-6, 1e-5)
    """λ1..λ5: weights of log P for the edges s→r, a→r, s→s between dimensions, s→s to itself, a→s."""
    structure: Literal["closed-form", "gradient"] = "closed-form"
    """How edges are found: by regression on all episodes so far, or by gradient, as published."""
    base: bool = True
    """In closed form only: fit an additive reward, and let the network behind the edges learn the rest."""
    compact: Literal["closure", "one-hop", "parents", "none"] = "closure"
    """What the policy sees: all ancestors of the reward, its parents and theirs, its parents only, or every
    dimension (the paper's ablation "w/o CR"). An episode's end counts as the reward does."""
    segments: int | None = None
    """Segments (whole episodes when the reward comes at the end) per reward update: M. When not given, so
    many as have 4,000 steps together, from 4 to 8; 4 with edges by gradient."""
    update_every: int | None = None
    """Updates of the policy for one of the reward model; fewer where these do not divide an iteration's. When
    not given, 10 for segments of 4,000 steps and fewer in proportion; 1 with edges by gradient."""
    hidden: tuple[int, ...] = (256, 256)
    """Hidden layers of the reward and dynamics networks."""
    learning_rate: float | None = None
    """Adam's step for the networks. When not given, 1e-3; 3e-4 with edges by gradient."""
    edge_learning_rate: float = 3e-4
    """Adam's step for the edge logits."""
    initial_edge_logit: float = 5.0
    """Where edge logits start; positive: every edge is on until the data speak against it."""
    temperature: float = 1.0
    """Temperature of the straight-through Gumbel-softmax."""
    components: int = 3
    """Gaussians in the mixture that predicts each next-state dimension."""
    log_std_range: tuple[float, float] = (-5.0, 2.0)
    """Where the mixture's log standard deviations are clamped."""
    target_identity: bool = True
    """Tell the shared dynamics network which dimension it predicts; False is the published form."""

    def __post_init__(self) -> None:
        check(
            len(self.sparsity) == 5 and min(self.sparsity) >= 0,
            f"method.sparsity={self.sparsity} must be five numbers, none negative",
        )
        rate = self.learning_rate
        check(rate is None or rate > 0, f"method.learning_rate={rate} must be positive")
        check(
            self.edge_learning_rate >= 0, f"method.edge_learning_rate={self.edge_learning_rate} is negative"
        )
        for name in ("segments", "update_every"):
            given = getattr(self, name)
            check(given is None or given >= 1, f"method.{name}={given} must be at least 1")
        check(len(self.hidden) >= 1, "method.hidden needs at least one layer")
        check(min(self.hidden) >= 1, f"method.hidden={self.hidden} must be at least 1 each")
        check(self.temperature > 0, f"method.temperature={self.temperature} must be positive")
        check(self.components >= 1, f"method.components={self.components} must be at least 1")
        check(self.log_std_range[0] < self.log_std_range[1], "method.log_std_range must rise")
