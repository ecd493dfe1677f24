"""What the peft library calls each adapter, and how its two tensors are made of a pair and taken apart again.

A pair beside a linear is `PATH.lora_A.weight` [rank, in] and `PATH.lora_B.weight` [out, rank] (lora/layer.py). Of a
linear that transformers keeps fused (GPT-2's c_attn) the pairs of its parts stand after each other in one of a larger
rank, B block by block. Experts that transformers keeps in one parameter have one pair of tensors, A expert by expert, B
with the experts innermost; two adapted parameters of one module are nested (peft 0.19, ParamWrapper).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from cost_models.errors import BadInput
from cost_models.operators import GroupedLinear, Linear, LoraAdapter
from cost_models.specs.model import LayerKind, ModelSpec, Role
from planner.executor.adapters.attach import ENDING, adapted_parts
from planner.executor.model.wiring import is_gated
from planner.executor.weights.cuts import Source
from planner.executor.weights.layouts import Layout
from planner.executor.weights.names import Naming, naming_of

PREFIX: Final = "base_model.model."
DOWN, UP = "lora_A.weight", "lora_B.weight"
STRAIGHT: Final[Mapping[Layout, Layout]] = {"transposed": "plain", "concat_transposed": "concat"}
"""B has [out, rank] where the weight of the linear is (in, out)."""
NESTED: Final = "base_layer."


@dataclass(frozen=True, slots=True)
class Member:
    """One pair of the executor's: names of A and B, and where the rows of B stand in the library's."""

    down: str
    up: str
    source: Source


@dataclass(frozen=True, slots=True)
class Entry:
    """One adapter of the library's: the module (for experts the parameter) beside which it stands, its pairs."""

    module: str
    inside: str
    """The module's path inside its block: what the library's config names."""
    members: tuple[Member, ...]
    rank: int
    experts: int = 0
    nested: bool = False

    @property
    def keys(self) -> tuple[str, str]:
        """Names of A and B in the file."""
        path = self.module.rpartition(".")[0] if self.experts else self.module
        between = NESTED if self.nested else ""
        return f"{PREFIX}{path}.{between}{DOWN}", f"{PREFIX}{path}.{between}{UP}"

    @property
    def total_rank(self) -> int:
        """Rank of the library's tensors, of one expert."""
        return self.rank if self.experts else self.rank * len(self.members)

    def joined(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The library's two tensors from the executor's, by name."""
        if self.experts:
            down = tensors[self.members[0].down]
            up = self._placed([tensors[member.up] for member in self.members])
            made = (down.flatten(0, 1), up.permute(1, 2, 0).flatten(1))
        else:
            down = torch.cat([tensors[member.down] for member in self.members])
            ups = [self._placed_one(member, tensors[member.up]) for member in self.members]
            made = (down, torch.cat(ups, 1))
        return {key: tensor.contiguous() for key, tensor in zip(self.keys, made, strict=True)}

    def parted(self, down: Tensor, up: Tensor) -> dict[str, Tensor]:
        """The executor's tensors from the library's; raises BadInput where ranks or features are others."""
        if self.experts:
            return self._parted_experts(down, up)
        wanted = self.members[0].source.shape[1]
        shared = down.shape[0] == wanted and len(self.members) > 1
        rows = self.members[0].source.stored_shape[0]
        if down.shape[0] not in (wanted, self.total_rank) or tuple(up.shape) != (rows, down.shape[0]):
            raise self._misfit(down, up)
        found: dict[str, Tensor] = {}
        for index, member in enumerate(self.members):
            start = 0 if shared else index * wanted
            found[member.down] = down[start : start + wanted]
            found[member.up] = _rows(member, up[:, start : start + wanted])
        if not shared and not torch.equal(self.joined(found)[self.keys[1]], up):
            raise BadInput(
                f"{self.keys[1]} mixes the parts of a fused linear, or adapts parts that the job does not; use "
                f"adapters of rank {wanted}, or of these parts alone"
            )
        return found

    def _parted_experts(self, down: Tensor, up: Tensor) -> dict[str, Tensor]:
        total = self.rank * self.experts
        rows = self.members[0].source.stored_shape[1]
        if down.shape[0] != total or tuple(up.shape) != (rows, total):
            raise self._misfit(down, up)
        by_expert = up.view(rows, self.rank, self.experts).permute(2, 0, 1)
        found = {self.members[0].down: down.view(self.experts, self.rank, -1)}
        for member in self.members:
            found[member.up] = _rows(member, by_expert)
        return found

    def _misfit(self, down: Tensor, up: Tensor) -> BadInput:
        return BadInput(
            f"{self.keys[0]} is {tuple(down.shape)} and B {tuple(up.shape)}, which is no adapter of rank {self.rank} "
            f"beside {self.module}; give the job the rank of the file"
        )

    def _placed(self, ups: Sequence[Tensor]) -> Tensor:
        return torch.stack(
            [self._placed_one(member, up) for member, up in zip(self.members, ups, strict=True)]
        ).sum(0)

    def _placed_one(self, member: Member, up: Tensor) -> Tensor:
        """B with its rows where they stand in the fused linear; the others are zero."""
        placed = up.new_zeros(member.source.stored_shape)
        for cut in member.source.cuts((0,) * up.dim(), tuple(up.shape)):
            placed[cut.stored] = cut.to_stored(up[cut.part])
        return placed


def _rows(member: Member, up: Tensor) -> Tensor:
    """The rows of one part."""
    found = up.new_empty(member.source.shape)
    for cut in member.source.cuts((0,) * up.dim(), member.source.shape):
        found[cut.part] = cut.to_part(up[cut.stored])
    return found


def entries_of(model: ModelSpec, targets: tuple[str, ...]) -> tuple[Entry, ...]:
    """All adapters of an adapted model; raises BadInput where the family, or a linear in it, has no known name."""
    naming = _module_naming(model)
    layers = [layer for layer in model.layers for _ in range(layer.count)]
    entries: list[Entry] = []
    for index, layer in enumerate(layers):
        if layer.role is not Role.BLOCK:
            continue
        kind = model.kinds[layer.kind]
        for operator in kind.operators:
            if isinstance(operator, LoraAdapter):
                linear = next(op for op in kind.operators if op.name == operator.name.removesuffix(ENDING))
                entries += _entries(
                    naming, f"layers.{index}.{linear.name}", (kind, linear, operator), targets
                )
    return tuple(_nest(entries))


def _entries(
    naming: Naming, own: str, what: tuple[LayerKind, object, LoraAdapter], targets: tuple[str, ...]
) -> Iterator[Entry]:
    """Adapters of one linear, one for each module that transformers makes of it."""
    kind, linear, adapter = what
    by_key: dict[str, list[Member]] = {}
    if isinstance(linear, GroupedLinear):
        names = ["gate", "up"] if is_gated(linear, kind.operators) else ["weight"]
        ups = {name: f"{own}.adapters.b_{name}" if len(names) > 1 else f"{own}.adapters.b" for name in names}
        shape = (adapter.experts, adapter.out_features // len(names), adapter.rank)
        for name in names:
            source = naming.source(f"{own}.{name}", shape)
            if source.layout != "experts":
                raise BadInput(
                    f"adapters beside {own}.{name} have no known form in the peft library ({source.layout}); name "
                    "other targets"
                )
            by_key.setdefault(source.key, []).append(Member(f"{own}.adapters.a", ups[name], source))
    elif isinstance(linear, Linear):
        parts = tuple(part.name for part in linear.parts)
        for name, features in zip(adapted_parts(adapter, parts, targets), adapter.parts, strict=True):
            source = naming.source(f"{own}.{name}", (features, adapter.rank))
            source = replace(source, layout=STRAIGHT.get(source.layout, source.layout))
            pair = f"{own}.adapters.{name}"
            by_key.setdefault(source.key, []).append(Member(f"{pair}.a", f"{pair}.b", source))
    for key, members in by_key.items():
        module = key.removesuffix(".weight")
        yield Entry(module, _inside(naming, module), tuple(members), adapter.rank, adapter.experts)


def _inside(naming: Naming, module: str) -> str:
    """The path after the block's number."""
    before, _, after = naming.names.block.partition("{}")
    return module.removeprefix(before).partition(after)[2]


def _nest(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Of two parameters of one module the first is nested in the other: the library wraps them in their order."""
    for index, entry in enumerate(entries):
        later = [other.keys for other in entries[index + 1 :] if entry.experts and other.experts]
        yield replace(entry, nested=entry.keys in later)


def _module_naming(model: ModelSpec) -> Naming:
    """Names as transformers' modules have them, where experts of a layer are one parameter."""
    naming = naming_of(model)
    together = [
        naming.names.block.format(block) + spelled
        for block in range(model.num_blocks)
        for spellings in naming.names.also.values()
        for spelled, layout in spellings
        if layout == "experts"
    ]
    return replace(naming, keys=frozenset(together))
