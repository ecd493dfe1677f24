"""Muon: momentum whose matrices are orthogonalized before they are applied; AdamW for everything else.

Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks"; the step is scaled to the size of
AdamW's, so that both share one learning rate (Liu et al. 2025, "Muon is Scalable for LLM Training", equation 4).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, overload

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from planner.executor.optimizers.settings import OptimizerSettings
from planner.executor.optimizers.target import Matrices, Target

# The quintic's coefficients steepen its slope at zero (Jordan et al. 2024, "Newton-Schulz iteration").
QUINTIC: Final = (3.4445, -4.7750, 2.0315)
ITERATIONS: Final = 5
SMALLEST_NORM: Final = 1e-7
RMS_OF_ADAMW: Final = 0.2
"""Usual root mean square of AdamW's step in units of the learning rate (Liu et al. 2025, section 2.2)."""
MOMENTUM: Final = 0.95
STACK_NDIM: Final = 3
"""Dimensions of a stack of matrices, such as the experts of a layer."""


def orthogonalize(matrix: Tensor, dtype: torch.dtype) -> Tensor:
    """Newton-Schulz iteration in `dtype` towards the nearest semi-orthogonal matrix; [..., rows, columns]."""
    a, b, c = QUINTIC
    stack = matrix.to(dtype).reshape(-1, *matrix.shape[-2:])
    is_tall = stack.shape[-2] > stack.shape[-1]
    x = stack.mT if is_tall else stack
    x = x / torch.linalg.matrix_norm(x, keepdim=True).clamp(min=SMALLEST_NORM)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if is_tall else x).to(matrix.dtype).reshape(matrix.shape)


class Muon(Optimizer):
    """Muon for targets with matrices, AdamW inside for the others; one learning rate moves both."""

    def __init__(self, targets: Sequence[Target], settings: OptimizerSettings, dtype: torch.dtype) -> None:
        hidden = [target for target in targets if target.matrices is not None]
        others = [
            target.parameter for target in targets if target.matrices is None and target.parameter.numel()
        ]
        self.matrices: dict[nn.Parameter, Matrices] = {
            target.parameter: target.matrices for target in hidden if target.matrices is not None
        }
        self._dtype = dtype
        # Both optimizers read the rate from these groups; AdamW's is the second.
        groups: list[dict[str, Any]] = [{"params": list(self.matrices)}, {"params": others}]
        super().__init__(
            [group for group in groups if group["params"]],
            {"lr": settings.lr, "weight_decay": settings.weight_decay, "momentum": MOMENTUM},
        )
        self.adamw = (
            AdamW(
                others,
                lr=settings.lr,
                betas=settings.betas,
                eps=settings.eps,
                weight_decay=settings.weight_decay,
                fused=True,
            )
            if others
            else None
        )

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One step; takes no closure."""
        if closure is not None:
            raise NotImplementedError("this optimizer takes no closure; compute gradients before the step")
        lr = self.param_groups[0]["lr"]
        for parameter, matrices in self.matrices.items():
            self._step_matrices(parameter, matrices, self.param_groups[0])
        if self.adamw is not None:
            self.adamw.param_groups[0]["lr"] = lr
            self.adamw.step()
        return None

    def _step_matrices(self, parameter: nn.Parameter, matrices: Matrices, group: dict[str, Any]) -> None:
        gradient, state = parameter.grad, self.state[parameter]
        if gradient is None:
            return
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(parameter)
        momentum = state["momentum"].mul_(group["momentum"]).add_(gradient)
        direction = gradient.add(momentum, alpha=group["momentum"])  # Nesterov's
        update = matrices.apply(self._update, direction)
        parameter.mul_(1.0 - group["lr"] * group["weight_decay"]).add_(update, alpha=-group["lr"])

    def _update(self, matrix: Tensor) -> Tensor:
        """The scaled direction of one matrix, of a stack of them, or of a convolution as [out, in x kernel]."""
        flat = matrix.flatten(1) if matrix.ndim > STACK_NDIM else matrix
        scale = RMS_OF_ADAMW * math.sqrt(max(flat.shape[-2:]))
        return (orthogonalize(flat, self._dtype) * scale).view_as(matrix)
