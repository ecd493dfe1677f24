"""What an optimizer is asked for: kind, rates, and how the learning rate moves."""

from dataclasses import dataclass
from typing import Literal

from cost_models.specs.job import Optimizer


@dataclass(frozen=True, slots=True)
class OptimizerSettings:
    """Defaults are torch.optim.AdamW's; every parameter decays, as there.

    The learning rate rises linearly over `warmup_steps`, then stays, or falls along a half cosine to
    `final_lr_share` of itself at `total_steps` (Loshchilov and Hutter 2017, equation 5).
    """

    kind: Optimizer = Optimizer.ADAMW
    lr: float = 1e-3
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    momentum: float = 0.9
    """Of SGD."""
    warmup_steps: int = 0
    decay: Literal["constant", "cosine"] = "constant"
    total_steps: int = 0
    """End of the cosine; not used by a constant rate."""
    final_lr_share: float = 0.1
