"""One kind of layer of a built module -> operators: traced work, attention, routed experts, shared weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cost_models.operators import Activation, Attention, Combine, Dispatch, GroupedLinear
from cost_models.operators.base import DtypeRole, Operator
from cost_models.operators.traced import Growth, Traced
from cost_models.readers.torch_module.costs import UnitCost
from cost_models.readers.torch_module.experts import Experts

if TYPE_CHECKING:
    from torch import nn

MAX_CALLS: Final = 8
"""Attention calls of one layer that become operators of their own."""
KEPT_PER_WIDTH: Final = 17.0
"""Elements a token and channel that a layer keeps where it could not be traced: 34 bytes in 16 bits (Korthikanti et
al. 2022, section 4.1, without the scores)."""
MOVED_PER_WIDTH: Final = 40.0
"""[Empirical] Elements a token and channel that the point-wise work of a transformer layer reads and writes."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Elements of a group of parameters."""

    matrices: int
    vectors: int

    @classmethod
    def of(cls, parameters: Iterable[nn.Parameter], tables: frozenset[int] = frozenset()) -> Weights:
        """Matrices and filters multiply; vectors, and tables that are looked up, do not."""
        matrices = vectors = 0
        for parameter in parameters:
            if parameter.dim() > 1 and id(parameter) not in tables:
                matrices += parameter.numel()
            else:
                vectors += parameter.numel()
        return cls(matrices, vectors)


@dataclass(frozen=True, slots=True)
class Scale:
    """What a length means: positions of a sequence, or the area of an image; `causal` halves pairs."""

    side: int
    causal: bool
    hidden: int


def traced(name: str, weights: Weights, cost: UnitCost | None, scale: Scale) -> Traced:
    """The work of one unit; from its parameters alone where it could not be traced."""
    if cost is None or cost.failed:
        return _estimate(name, weights, scale)
    return Traced(
        name=name,
        weights=weights.matrices,
        vectors=weights.vectors,
        convolution=cost.convolution,
        matmuls=cost.matmuls,
        columns=cost.columns,
        depth=cost.depth,
        flops=cost.flops,
        causal=float(scale.causal) if cost.causal is None else cost.causal,
        moved=cost.moved,
        launches=cost.launches,
        kept=dict(cost.kept),
        reads=_reads(cost),
        width=cost.width.linear,
        image_size=scale.side,
    )


def _estimate(name: str, weights: Weights, scale: Scale) -> Traced:
    """2 FLOPs a weight and token; an image has as many tokens as patches of 16 pixels."""
    tokens = float((scale.side // 16) ** 2) if scale.side else 1.0
    width = scale.hidden * tokens
    return Traced(
        name=name,
        weights=weights.matrices,
        vectors=weights.vectors,
        columns=max(float(scale.hidden), 1.0),
        depth=max(float(scale.hidden), 1.0),
        flops=Growth(linear=2.0 * weights.matrices * tokens),
        moved=Growth(linear=MOVED_PER_WIDTH * width),
        launches=16.0,
        kept={DtypeRole.COMPUTE: Growth(linear=KEPT_PER_WIDTH * width)},
        width=float(width),
        image_size=scale.side,
    )


def attention_operators(cost: UnitCost | None) -> tuple[Operator, ...]:
    """Attention over the whole sequence, one operator a call."""
    if cost is None or cost.failed:
        return ()
    found: list[Operator] = []
    for call, times in cost.attention:
        for _ in range(times):
            name = _attention_name(len(found))
            found.append(
                Attention(
                    name=name,
                    inputs=(f"{name}.q", f"{name}.k", f"{name}.v"),
                    heads=call.heads,
                    kv_heads=call.kv_heads,
                    qk_dim=call.qk_dim,
                    v_dim=call.v_dim,
                    causal=call.causal,
                    window=call.window,
                )
            )
    return tuple(found)


def _attention_name(index: int) -> str:
    """The first two bear the names that recompute scopes know."""
    return ("core_attention", "cross_attention")[index] if index < 2 else f"core_attention_{index}"


def _reads(cost: UnitCost) -> dict[str, float]:
    """Outputs of attention, which the projection behind it keeps."""
    widths = [float(call.heads * call.v_dim) for call, times in cost.attention for _ in range(times)]
    return {_attention_name(index): width for index, width in enumerate(widths)}


def expert_operators(experts: Sequence[Experts], hidden: int) -> tuple[Operator, ...]:
    """Dispatch, the grouped products of all experts, and combine, for each block of experts."""
    found: list[Operator] = []
    for index, each in enumerate(experts):
        suffix = f"_{index}" if index else ""
        width = each.matrices[0].in_features if each.matrices else hidden
        found.append(Dispatch(name=f"dispatch{suffix}", hidden=width, top_k=each.top_k))
        found += _products(each, suffix, width)
        combine = Combine(name=f"combine{suffix}", inputs=(found[-1].name,), hidden=width, top_k=each.top_k)
        found.append(combine)
    return tuple(found)


def _products(each: Experts, suffix: str, width: int) -> list[Operator]:
    """Products in the order of the weights; an activation stands before the last."""
    found: list[Operator] = []
    source = f"dispatch{suffix}"
    matrices = [(m.in_features, m.out_features, m.bias) for m in each.matrices]
    if each.extra:
        inside = width if each.extra % width == 0 else 1
        matrices.append((inside, each.extra // inside, 0))
    last = len(each.matrices) - 1
    for index, (inside, outside, bias) in enumerate(matrices):
        down = 0 < index == last
        if down:
            found.append(_activation(found, suffix, inside, each.top_k))
        name = "expert_down" if down else ("expert_gate_up", "expert_up")[min(index, 1)]
        unique = name if index < 2 or down else f"expert_{index}"
        found.append(
            GroupedLinear(
                name=unique + suffix,
                inputs=(found[-1].name if down else source,),
                experts=each.experts,
                top_k=each.top_k,
                in_features=inside,
                out_features=outside,
                split="row" if down else "column",
                bias=bool(bias),
            )
        )
    return found


def _activation(products: Sequence[Operator], suffix: str, width: int, top_k: int) -> Operator:
    """Gated where the products in front hand on twice the width."""
    handed = sum(op.out_features for op in products if isinstance(op, GroupedLinear))
    return Activation(
        name=f"expert_act{suffix}",
        inputs=tuple(op.name for op in products),
        width=width,
        gated=handed == 2 * width,
        expert_top_k=top_k,
    )


def shared_operators(groups: Mapping[str, Weights]) -> tuple[Operator, ...]:
    """Weights that other layers use too, stored once however many layers hold them."""
    return tuple(
        Traced(name=f"shared_{index}", weights=weights.matrices, vectors=weights.vectors, shares=group)
        for index, (group, weights) in enumerate(sorted(groups.items()))
    )
