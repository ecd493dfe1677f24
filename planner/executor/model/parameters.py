"""Parameters whose first values depend on the seed and their global name alone, whatever the layout.

The whole tensor is drawn from a generator of its own, then the rank keeps its slice, so any two layouts start from
equal weights.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate, Shard

from cost_models.errors import BadInput
from planner.executor.model.options import DRAWN, GIVEN, BuildOptions
from planner.executor.model.tensor_parallel import mark_partial

INIT_STD = 0.02
"""Standard deviation of weight matrices and tables (GPT-2, Radford et al. 2019; BERT, Devlin et al. 2019)."""

Draw = Callable[[Tensor, torch.Generator], None]
"""Fills a whole tensor in place."""


def normal(tensor: Tensor, generator: torch.Generator) -> None:
    """Weights of linears and tables."""
    tensor.normal_(0.0, INIT_STD, generator=generator)


def zeros(tensor: Tensor, generator: torch.Generator) -> None:
    """Biases."""
    tensor.zero_()


def ones(tensor: Tensor, generator: torch.Generator) -> None:
    """Weights of norms."""
    tensor.fill_(1.0)


def fan_out(tensor: Tensor, generator: torch.Generator) -> None:
    """Convolutions, as He et al. 2015, equation 14: variance 2 / (out channels x kernel^2)."""
    fan = tensor.shape[0] * tensor[0, 0].numel()
    tensor.normal_(0.0, (2.0 / fan) ** 0.5, generator=generator)


@dataclass(frozen=True, slots=True)
class Initial:
    """A parameter to make: its whole shape, first values, the dimension divided over tensor-parallel ranks.

    `rows` above 0: the first dimension is padded with zero rows to a multiple of the ranks. `partial`: see
    `mark_partial`. `tie` names the storage it shares. `expert`: the first dimension counts routed experts, which ep
    ranks divide, and `shard` is divided over expert-tensor-parallel ranks.
    """

    shape: tuple[int, ...]
    draw: Draw = normal
    shard: int | None = None
    tie: str = ""
    partial: bool = False
    pad: bool = False
    expert: bool = False


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes the parameters of one operator; `tied` holds the chunk's tied parameters made so far."""

    options: BuildOptions
    prefix: str
    shared: str = ""
    """Weight-sharing group of the layer or operator; equal groups and names share storage."""
    tied: dict[str, nn.Parameter] = field(default_factory=dict)

    def make(self, name: str, initial: Initial) -> nn.Parameter:
        """The rank's parameter; tied ones are one object within a chunk."""
        tie = initial.tie or (f"{self.shared}/{name}" if self.shared else "")
        if tie and tie in self.tied:
            return self.tied[tie]
        full_name = f"{self.prefix}.{name}"
        whole = self._draw(tie or full_name, initial)
        place = self._place_expert if initial.expert else self._place
        parameter = nn.Parameter(place(full_name, whole, initial))
        ranks = self.options.experts.etp if initial.expert else self.options.tensor_parallel.size
        if initial.partial and ranks > 1:
            mark_partial(parameter)
        if initial.expert:
            parameter.expert_parallel = True  # type: ignore[attr-defined]
        if initial.pad:
            parameter.unpadded_rows = initial.shape[0]  # type: ignore[attr-defined]
        if tie:
            parameter.tie_name = tie  # type: ignore[attr-defined]
            self.tied[tie] = parameter
        return parameter

    def _draw(self, key: str, initial: Initial) -> Tensor:
        options = self.options
        if options.device == "meta" or options.values != DRAWN:
            return torch.empty(initial.shape, dtype=options.dtype, device="meta")
        generator = torch.Generator().manual_seed(_seed_of(options.seed, key))
        whole = torch.empty(initial.shape, dtype=torch.float32)
        initial.draw(whole, generator)
        return whole

    def _place(self, name: str, whole: Tensor, initial: Initial) -> Tensor:
        """The rank's slice on its device, as a DTensor where there is a tensor-parallel group."""
        tp = self.options.tensor_parallel
        if tp.size == 1:
            return self._here(whole)
        part = whole
        if initial.shard is not None:
            part = self._slice(name, whole, initial, initial.shard)
        part = self._here(part, copy=True)
        if tp.mesh is None:
            raise RuntimeError(f"tensor parallel of size {tp.size} has no mesh; give one")
        placement = Replicate() if initial.shard is None else Shard(initial.shard)
        return DTensor.from_local(part, tp.mesh, [placement], run_check=False)

    def _place_expert(self, name: str, whole: Tensor, initial: Initial) -> Tensor:
        """The rank's experts and its part of each, as a DTensor where they are divided."""
        group = self.options.experts
        cuts = [(0, group.ep, group.ep_rank)]
        cuts += [] if initial.shard is None else [(initial.shard, group.etp, group.etp_rank)]
        part = whole
        for dim, ranks, rank in cuts:
            if part.shape[dim] % ranks:
                what = "experts" if dim == 0 else "features"
                raise BadInput(
                    f"{name} has {part.shape[dim]} {what}, which {ranks} ranks do not divide; use another "
                    f"{'ep' if dim == 0 else 'etp'}"
                )
            length = part.shape[dim] // ranks
            part = part.narrow(dim, rank * length, length)
        part = self._here(part, copy=part is not whole)
        if group.mesh is None:
            return part
        inner = Replicate() if initial.shard is None else Shard(initial.shard)
        return DTensor.from_local(part, group.mesh, [Shard(0), inner], run_check=False)

    def _here(self, part: Tensor, *, copy: bool = False) -> Tensor:
        """The rank's part on its device; zeros where the values come later, which rows of padding keep."""
        options = self.options
        if options.values == GIVEN and part.is_meta:
            return torch.zeros(part.shape, dtype=options.dtype, device=options.device)
        device = "meta" if part.is_meta else options.device
        return part.to(device, options.dtype, copy=copy)

    def _slice(self, name: str, whole: Tensor, initial: Initial, dim: int) -> Tensor:
        tp = self.options.tensor_parallel
        size = whole.shape[dim]
        if initial.pad and size % tp.size:
            padding = whole.new_zeros((-size % tp.size, *whole.shape[1:]))
            whole = torch.cat((whole, padding))
        elif size % tp.size:
            raise BadInput(
                f"{name} has {size} features, which tp {tp.size} does not divide; use a tp that divides {size}"
            )
        length = whole.shape[dim] // tp.size
        return whole.narrow(dim, tp.rank * length, length)


def _seed_of(seed: int, key: str) -> int:
    """A generator's seed from the run's seed and a parameter's name; equal on every machine."""
    digest = hashlib.sha256(f"{seed}/{key}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def give_storage(chunk: nn.Module, device: str) -> None:
    """Zeros for parameters that are on the meta device, where they lie sharded by now; buffers stay as they are."""

    def placed(tensor: Tensor) -> Tensor:
        return torch.zeros_like(tensor, device=device) if tensor.is_meta else tensor

    if any(parameter.is_meta for parameter in chunk.parameters()):
        chunk._apply(placed)  # type: ignore[no-untyped-call]
