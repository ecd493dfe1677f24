"""AdamW with 8-bit moments: blocks of 256 values share a scale, values are codes of a table that is dense near zero.

Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization": block-wise scales (section 2.1), dynamic
quantization (section 2.2 and appendix A.1) with an unsigned table for the second moment. Computing is in fp32.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, overload

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from planner.executor.optimizers.settings import OptimizerSettings

BLOCK_ELEMENTS: Final = 256
PIECE_BLOCKS: Final = 8192
"""Blocks updated at once, so that fp32 copies of the moments stay small (8 MiB each)."""
EXPONENTS: Final = 7
"""Powers of ten that a dynamic code spans: 1 down to 1e-6."""


@cache
def code_table(signed: bool, device: torch.device) -> Tensor:
    """256 rising values in [-1, 1] or [0, 1]: ever fewer fraction bits the smaller the power of ten."""
    values = [0.0, 1.0]
    for exponent in range(EXPONENTS):
        # The sign costs a bit, and each power of ten one more from the top: halves as many values.
        count = 2 ** (EXPONENTS - 1 - (exponent if signed else exponent - 1))
        edges = torch.linspace(0.1, 1.0, count + 1, dtype=torch.float64)
        means = (edges[:-1] + edges[1:]) / 2
        for value in (means * 10.0**-exponent).tolist():
            values += [value, -value] if signed else [value]
    return torch.tensor(sorted(values), dtype=torch.float32, device=device)


@dataclass(slots=True)
class Quantized:
    """Values as codes [blocks, 256] and one scale a block."""

    codes: Tensor
    scales: Tensor
    signed: bool

    @classmethod
    def zeros(cls, blocks: int, device: torch.device, *, signed: bool) -> "Quantized":
        """All values zero."""
        zero = int(torch.searchsorted(code_table(signed, device), 0.0))
        codes = torch.full((blocks, BLOCK_ELEMENTS), zero, dtype=torch.uint8, device=device)
        return cls(codes, torch.zeros(blocks, device=device), signed)

    def read(self, start: int, stop: int) -> Tensor:
        """fp32 values of the blocks [start, stop)."""
        table = code_table(self.signed, self.codes.device)
        return table[self.codes[start:stop].int()] * self.scales[start:stop, None]

    def write(self, start: int, values: Tensor) -> None:
        """Quantize fp32 blocks to their nearest codes."""
        stop = start + len(values)
        scales = values.abs().amax(1)
        table = code_table(self.signed, values.device)
        between = (table[1:] + table[:-1]) / 2
        shares = values / scales.clamp(min=torch.finfo(torch.float32).tiny)[:, None]
        codes = torch.bucketize(shares, between).to(torch.uint8)
        if not self.signed:
            # A second moment that rounds to zero would divide by nothing: it keeps the smallest code instead.
            codes = torch.maximum(codes, (values > 0.0).to(torch.uint8))
        self.codes[start:stop] = codes
        self.scales[start:stop] = scales


class Adam8bit(Optimizer):
    """AdamW on fp32 parameters, its moments in 8 bits: 2 + 8/256 bytes a parameter."""

    def __init__(self, parameters: Sequence[nn.Parameter], settings: OptimizerSettings) -> None:
        defaults = {
            "lr": settings.lr,
            "betas": settings.betas,
            "eps": settings.eps,
            "weight_decay": settings.weight_decay,
        }
        super().__init__(parameters, defaults)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One step; takes no closure."""
        if closure is not None:
            raise NotImplementedError("this optimizer takes no closure; compute gradients before the step")
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return None

    def _update(self, parameter: nn.Parameter, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        blocks = -(-parameter.numel() // BLOCK_ELEMENTS)
        if not state:
            state["step"] = 0
            state["first"] = Quantized.zeros(blocks, parameter.device, signed=True)
            state["second"] = Quantized.zeros(blocks, parameter.device, signed=False)
        state["step"] += 1
        values, gradients = parameter.view(-1), parameter.grad.reshape(-1)  # type: ignore[union-attr]
        for start in range(0, blocks, PIECE_BLOCKS):
            stop = min(start + PIECE_BLOCKS, blocks)
            span = slice(start * BLOCK_ELEMENTS, stop * BLOCK_ELEMENTS)
            values[span] = _piece(values[span], gradients[span], state, group, (start, stop))


def _piece(
    values: Tensor, gradient: Tensor, state: dict[str, Any], group: dict[str, Any], blocks: tuple[int, int]
) -> Tensor:
    """New values of a span of whole blocks (the last may be short); writes its moments back."""
    (beta1, beta2), step, numel = group["betas"], state["step"], values.numel()
    padded = functional.pad(gradient, (0, (blocks[1] - blocks[0]) * BLOCK_ELEMENTS - numel))
    padded = padded.view(-1, BLOCK_ELEMENTS)
    first = state["first"].read(*blocks).lerp_(padded, 1.0 - beta1)
    second = state["second"].read(*blocks).mul_(beta2).addcmul_(padded, padded, value=1.0 - beta2)
    state["first"].write(blocks[0], first)
    state["second"].write(blocks[0], second)
    denominator = (second / (1.0 - beta2**step)).sqrt_().add_(group["eps"])
    update = (first / denominator).view(-1)[:numel]
    rate = group["lr"] / (1.0 - beta1**step)
    return values.mul(1.0 - group["lr"] * group["weight_decay"]).add_(update, alpha=-rate)
