"""Which tensor of a transformers state dict (version 5) each parameter is, and how it is cut from a fused one."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from cost_models.errors import BadInput
from cost_models.operators import Linear
from cost_models.specs.model import ModelSpec, Role
from planner.executor.model.hf_tables import FAMILIES, Layout, Names


@dataclass(frozen=True, slots=True)
class Source:
    """Where a parameter comes from: the key, the layout, which of `sizes` it is, how many heads interleave."""

    key: str
    layout: Layout = "plain"
    index: int = 0
    sizes: tuple[int, ...] = ()
    heads: int = 0

    def cut(self, tensor: Tensor) -> Tensor:
        """The parameter's own elements of the source tensor."""
        if self.layout in ("transposed", "concat_transposed"):
            tensor = tensor.T
        if self.layout == "experts_in_turn":
            rows = tensor.transpose(1, 2) if tensor.dim() == 3 else tensor
            return rows[:, self.index :: len(self.sizes)] if self.sizes else rows
        if self.layout == "by_head":
            sizes = [size // self.heads for size in self.sizes]
            by_head = tensor.reshape(self.heads, sum(sizes), *tensor.shape[1:])
            return torch.split_with_sizes(by_head, sizes, 1)[self.index].reshape(-1, *tensor.shape[1:])
        if self.layout in ("concat", "concat_transposed", "experts") and self.sizes:
            dim = 1 if self.layout == "experts" else 0
            return torch.split_with_sizes(tensor, list(self.sizes), dim)[self.index]
        return tensor


def hf_sources(model: ModelSpec, names: Iterable[str]) -> dict[str, Source]:
    """The source of each named parameter, with the tied table under its first name only."""
    family = FAMILIES.get(model.family)
    if family is None:
        raise BadInput(
            f"weights of {model.family} have no known names; use one of {', '.join(sorted(FAMILIES))}"
        )
    first = next(i for i, layer in enumerate(_layers(model)) if layer[1] is Role.BLOCK)
    return {name: _source(model, family, name, first) for name in names}


def _layers(model: ModelSpec) -> list[tuple[str, Role]]:
    return [(layer.kind, layer.role) for layer in model.layers for _ in range(layer.count)]


def _source(model: ModelSpec, family: Names, name: str, first: int) -> Source:
    _, index, operator, parameter = name.split(".")
    kind, role = _layers(model)[int(index)]
    inside = role is Role.BLOCK
    table = family.inside if inside else family.outside
    key, suffix = _key(operator, parameter, table)
    prefix = family.block.format(int(index) - first) if inside else ""
    whole = key.startswith("expert") or parameter == "sinks"
    end = f".{suffix}" if not whole else "_bias" if suffix == "bias" else ""
    full = prefix + table[key] + end
    layout = family.layouts.get(key, "plain")
    if suffix == "bias" and layout == "transposed":
        return Source(full)
    sizes, index_of = _parts(model, kind, operator, key)
    if suffix == "bias" and layout == "concat_transposed":
        layout = "concat"
    return Source(full, layout, index_of, sizes, model.num_attention_heads)


def _key(operator: str, parameter: str, table: Mapping[str, str]) -> tuple[str, str]:
    """The table's entry for a parameter, and whether it is the weight or the bias."""
    part, suffix = (
        (parameter.removesuffix("_bias"), "bias") if parameter.endswith("bias") else (parameter, "weight")
    )
    for key in (f"{operator}.{parameter}", f"{operator}.{part}", operator):
        if key in table:
            return key, suffix
    raise BadInput(f"parameter {operator}.{parameter} has no known name in the family's weights")


def _parts(model: ModelSpec, kind: str, operator: str, key: str) -> tuple[tuple[int, ...], int]:
    """Features of all parts of a fused linear, and which one the key is."""
    found = next(op for op in model.kinds[kind].operators if op.name == operator)
    part = key.partition(".")[2]
    if isinstance(found, Linear) and len(found.parts) > 1:
        return tuple(each.features for each in found.parts), [each.name for each in found.parts].index(part)
    if found.family == "grouped_linear" and part in ("gate", "up"):
        return (found.out_features // 2,) * 2, ("gate", "up").index(part)
    return (), 0
