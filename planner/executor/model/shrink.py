"""A small model of the same structure: every size replaced, every operator, kind and tie kept.

Equal sizes become equal sizes (a residual's width stays its branch's), and what tensor, context or expert
parallelism divides stays divisible by the same degree.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from cost_models.operators import Attention, GroupedLinear, Linear, Norm, Rope, Router
from cost_models.operators.base import Operator
from cost_models.specs.model import Layer, LayerKind, ModelSpec, Role
from planner.executor.model.wiring import JOINED, LATENT_INPUTS, is_gated

HEAD_DIM = 8
LATENT_ROTATED = 4
CHANNEL_DIVISOR = 16
TOP_K = 2
GROUPS = 2
ROWS_PER_RANK = 32
"""Vocabulary rows of one tensor-parallel rank."""


@dataclass(frozen=True, slots=True)
class Shrinkage:
    """What the small sizes must be divisible by, the small sequence, and the blocks to keep."""

    tp: int
    heads_over: int
    """Ranks that key/value heads are divided over (tp, or tp x cp where heads travel)."""
    experts_over: int
    seq_len: int
    """Positions of the small model."""
    full_seq_len: int
    """Positions of the model itself, which windows are compared with."""
    blocks: tuple[int, ...]
    """Numbers of the kept blocks in order."""
    image_size: int = 0
    features_over: int = 1
    """Ranks that the features of experts are divided over."""


@dataclass(slots=True)
class _Sizes:
    """Size of the model -> size of the small one."""

    chosen: dict[int, int] = field(default_factory=dict)

    def of(self, size: int) -> int:
        return self.chosen.get(size, size)


@dataclass(frozen=True, slots=True)
class _Heads:
    """Small numbers of one kind of attention."""

    heads: int
    kv_heads: int
    qk_dim: int
    v_dim: int
    rotated: int


def shrink(model: ModelSpec, to: Shrinkage) -> ModelSpec:
    """The small model; its blocks are those of `to.blocks`."""
    sizes = _sizes(model, to)
    kinds = {name: _kind(kind, model, to, sizes) for name, kind in model.kinds.items()}
    layers = tuple(_layers(model, to))
    heads = [op for layer in layers for op in kinds[layer.kind].operators if isinstance(op, Attention)]
    groups = model.semantics.get("router_groups")
    semantics = dict(model.semantics)
    if groups is not None:
        semantics |= {"router_groups": min(int(groups), GROUPS), "router_groups_kept": 1}
    return model.model_copy(
        update={
            "name": f"{model.name} (twin)",
            "layers": layers,
            "kinds": kinds,
            "vocab_size": _vocabulary(model.vocab_size, to) if model.vocab_size else 0,
            "hidden_size": sizes.of(model.hidden_size),
            "num_attention_heads": heads[0].heads if heads else 0,
            "num_kv_heads": heads[0].kv_heads if heads else 0,
            "num_experts": _experts(model.num_experts, to),
            "num_experts_per_token": min(model.num_experts_per_token, TOP_K),
            "max_seq_len": to.seq_len if model.max_seq_len else 0,
            "image_size": to.image_size,
            "semantics": semantics,
        }
    )


def _layers(model: ModelSpec, to: Shrinkage) -> Iterator[Layer]:
    """Layers of the kept blocks and all others, one entry a layer."""
    block = 0
    for layer in model.layers:
        for _ in range(layer.count):
            if layer.role is not Role.BLOCK or block in to.blocks:
                yield layer.model_copy(update={"count": 1})
            block += layer.role is Role.BLOCK


def _vocabulary(rows: int, to: Shrinkage) -> int:
    """Rows that the ranks divide, or not, as in the model."""
    return ROWS_PER_RANK * to.tp + (1 if rows % to.tp else 0)


def _experts(experts: int, to: Shrinkage) -> int:
    """A multiple of the ranks that divide them and of the groups, enough for a choice."""
    ranks = to.experts_over
    return min(experts, GROUPS * ranks * -(-2 * TOP_K // ranks)) if experts else 0


def _sizes(model: ModelSpec, to: Shrinkage) -> _Sizes:
    """Heads first, so that a width which is heads x dim stays so; then every other width in rising order."""
    operators = [op for kind in model.kinds.values() for op in kind.operators]
    sizes = _Sizes()
    if model.is_vision:
        widths = {op.out_channels for op in operators if op.family == "conv2d"} | {model.hidden_size}
        sizes.chosen = {width: max(width // CHANNEL_DIVISOR, 2) for width in widths}
        return sizes
    for kind in model.kinds.values():
        for attention in (op for op in kind.operators if isinstance(op, Attention)):
            _choose_heads(attention, _heads(attention, kind, to), sizes)
    unit = HEAD_DIM * math.lcm(to.tp, to.features_over)
    for width in sorted({w for op in operators for w in _widths(op)} | {model.hidden_size}):
        sizes.chosen.setdefault(width, 2 * unit + unit * len(sizes.chosen))
    return sizes


def _choose_heads(attention: Attention, small: _Heads, sizes: _Sizes) -> None:
    pairs = (
        (attention.heads * attention.qk_dim, small.heads * small.qk_dim),
        (attention.kv_heads * attention.qk_dim, small.kv_heads * small.qk_dim),
        (attention.heads * attention.v_dim, small.heads * small.v_dim),
        (attention.kv_heads * attention.v_dim, small.kv_heads * small.v_dim),
    )
    for size, chosen in pairs:
        sizes.chosen.setdefault(size, chosen)


def _heads(attention: Attention, kind: LayerKind, to: Shrinkage) -> _Heads:
    """As few heads as the ranks can share, grouped by two where keys are shared at all."""
    kv_heads = max(to.heads_over, 2) if attention.kv_heads > 1 else 1
    grouped = attention.heads > attention.kv_heads
    rope = next((op for op in kind.operators if isinstance(op, Rope)), None)
    latent = rope is not None and rope.inputs == LATENT_INPUTS
    if latent:
        return _Heads(kv_heads, kv_heads, HEAD_DIM + LATENT_ROTATED, HEAD_DIM, LATENT_ROTATED)
    turned = rope.width // (attention.heads + attention.kv_heads) if rope else 0
    rotated = HEAD_DIM if turned == attention.qk_dim else HEAD_DIM // 2
    v_dim = HEAD_DIM if attention.v_dim == attention.qk_dim else HEAD_DIM // 2
    return _Heads(kv_heads * (2 if grouped else 1), kv_heads, HEAD_DIM, v_dim, rotated if rope else 0)


def _widths(operator: Operator) -> tuple[int, ...]:
    """Sizes of the features that an operator reads and writes."""
    if isinstance(operator, Linear):
        return (operator.in_features, *(part.features for part in operator.parts))
    names = ("width", "hidden", "in_features")
    return tuple(
        size for name in names if (size := getattr(operator, name, 0)) and not _is_head_size(operator)
    )


def _is_head_size(operator: Operator) -> bool:
    """Whether `width` is not one of the stream or a linear: a head's, or features that are turned."""
    return isinstance(operator, Rope | Attention) or (isinstance(operator, Norm) and operator.sharded)


def _kind(kind: LayerKind, model: ModelSpec, to: Shrinkage, sizes: _Sizes) -> LayerKind:
    attention = next((op for op in kind.operators if isinstance(op, Attention)), None)
    heads = _heads(attention, kind, to) if attention else None
    operators = []
    for operator in kind.operators:
        changes = _plain(operator, to, sizes)
        if isinstance(operator, Linear):
            changes |= _linear(operator, kind, heads, sizes)
        if isinstance(operator, GroupedLinear):
            halves = 2 if is_gated(operator, kind.operators) else 1
            changes["out_features"] = halves * sizes.of(operator.out_features // halves)
        if heads is not None and attention is not None:
            changes |= _of_heads(operator, attention, heads, to)
        operators.append(operator.model_copy(update=changes))
    width = sizes.of(kind.boundary_width)
    return kind.model_copy(update={"operators": tuple(operators), "boundary_width": width})


def _plain(operator: Operator, to: Shrinkage, sizes: _Sizes) -> dict[str, Any]:
    """Sizes whose name says what they are, whatever the operator."""
    found: dict[str, Any] = {}
    for name in ("width", "hidden", "in_features", "in_channels", "out_channels", "channels"):
        size = getattr(operator, name, None)
        if isinstance(size, int):
            found[name] = sizes.of(size)
    if getattr(operator, "vocab_size", 0):
        found["vocab_size"] = _vocabulary(getattr(operator, "vocab_size", 0), to)
    if getattr(operator, "positions", 0):
        found["positions"] = to.seq_len + 2  # room for tables that start at an offset (OPT)
    if getattr(operator, "position_width", 0):
        found["position_width"] = sizes.of(getattr(operator, "position_width", 0))
    for name in ("top_k", "expert_top_k"):
        if getattr(operator, name, 0):
            found[name] = min(getattr(operator, name), TOP_K)
    if isinstance(operator, Router | GroupedLinear):
        found["experts"] = _experts(operator.experts, to)
    return found


def _linear(operator: Linear, kind: LayerKind, heads: _Heads | None, sizes: _Sizes) -> dict[str, Any]:
    """Every part's features; the latent's linear also holds the shared turned key."""
    rope = next((op for op in kind.operators if isinstance(op, Rope)), None)
    joined = rope is not None and rope.inputs == LATENT_INPUTS and operator.name == rope.inputs[1]
    parts = []
    if operator.inputs == (JOINED,):  # embedding and hidden state side by side
        widths = ({"features": sizes.of(part.features)} for part in operator.parts)
        own = tuple(part.model_copy(update=width) for part, width in zip(operator.parts, widths, strict=True))
        return {"in_features": 2 * sizes.of(operator.in_features // 2), "parts": own}
    for part in operator.parts:
        features = sizes.of(part.features)
        if joined and heads is not None:
            norm = next(op for op in kind.operators if isinstance(op, Norm) and op.inputs == (operator.name,))
            features = sizes.of(norm.width) + heads.rotated
        shards = heads.kv_heads if part.max_shards and heads is not None else 0
        parts.append(part.model_copy(update={"features": features, "max_shards": shards}))
    return {"parts": tuple(parts)}


def _of_heads(operator: Operator, attention: Attention, heads: _Heads, to: Shrinkage) -> dict[str, Any]:
    """Numbers of heads and their sizes; a window stays one only if it was one."""
    if isinstance(operator, Attention):
        limits = {name: _limit(getattr(operator, name), to) for name in ("window", "chunk")}
        return {
            "heads": heads.heads,
            "kv_heads": heads.kv_heads,
            "qk_dim": heads.qk_dim,
            "v_dim": heads.v_dim,
            **limits,
        }
    if isinstance(operator, Rope):
        return {"width": heads.rotated * (heads.heads + heads.kv_heads)}
    if isinstance(operator, Norm) and operator.sharded:
        of_keys = operator.width * operator.groups == attention.kv_heads * attention.qk_dim
        own = heads.kv_heads if of_keys and attention.kv_heads != attention.heads else heads.heads
        whole = operator.width != attention.qk_dim
        shards = heads.kv_heads if operator.max_shards else 0
        return {
            "width": own * heads.qk_dim if whole else heads.qk_dim,
            "groups": 1 if whole else own,
            "max_shards": shards,
        }
    return {}


def _limit(positions: int, to: Shrinkage) -> int:
    if not positions:
        return 0
    return to.seq_len // 2 if positions < to.full_seq_len else 2 * to.seq_len


def kept_blocks(model: ModelSpec, stages: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """At most two blocks a stage, of two kinds where it has them; fewer on a smaller stage. Also their counts.

    A convolutional network keeps all of its blocks, as each fits only the one before it.
    """
    if model.is_vision:
        return tuple(range(model.num_blocks)), tuple(stages)
    kinds = [layer.kind for layer in model.expanded(Role.BLOCK)]
    uneven = len(set(stages)) > 1
    kept: list[int] = []
    counts = []
    start = 0
    for size in stages:
        count = min(size, 1 if uneven and size == min(stages) else 2)
        own = range(start, start + size)
        other = next((i for i in own if kinds[i] != kinds[start]), own[-1] if size else 0)
        kept += [start, other][:count] if count else []
        counts.append(count)
        start += size
    return tuple(kept), tuple(counts)
