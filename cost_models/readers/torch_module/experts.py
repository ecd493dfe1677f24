"""Routed experts inside a layer, found by structure: weights with one slice an expert, or a list of equal modules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cost_models.errors import InvalidModel
from cost_models.readers.torch_module.structure import attribute, unique_parameters

if TYPE_CHECKING:
    from torch import nn

TOP_K_NAMES: Final = (
    "top_k",
    "topk",
    "num_experts_per_tok",
    "num_experts_per_token",
    "top_k_experts",
    "moe_topk",
    "moe_top_k",
    "moe_k",
    "num_selected_experts",
    "num_experts_per_topk",
    "router_topk",
    "k",
)
"""Names under which routers and configs keep the number of experts of a token."""
EXPERT_COUNT_NAMES: Final = (
    "num_experts",
    "num_local_experts",
    "n_routed_experts",
    "num_routed_experts",
    "moe_num_experts",
)


@dataclass(frozen=True, slots=True)
class ExpertMatrix:
    """One weight of every expert, out x in, and the elements of its bias."""

    in_features: int
    out_features: int
    bias: int = 0


@dataclass(frozen=True)
class Experts:
    """A container of routed experts: `path` inside the layer, its module, the block that routes to it."""

    path: str
    module: nn.Module
    block: nn.Module
    experts: int
    top_k: int
    matrices: tuple[ExpertMatrix, ...]
    extra: int
    """Elements of one expert that are no matrix and no bias of one."""
    parameters: frozenset[int]
    is_list: bool
    elements: int


def find_experts(layer: nn.Module, config: object) -> tuple[Experts, ...]:
    """Containers of routed experts of one layer; raises InvalidModel where the router's choice cannot be told."""
    found = []
    done: list[str] = []
    for path, module in layer.named_modules():
        if any(path == each or path.startswith(f"{each}.") for each in done):
            continue
        count, is_list = _expert_count(path, module)
        if not count:
            continue
        done.append(path)
        block = _block(layer, path)
        found.append(_container(path, module, block, count, is_list, _top_k(layer, path, count, config)))
    if not found:
        _refuse_hidden_experts(layer)
    return tuple(found)


def _refuse_hidden_experts(layer: nn.Module) -> None:
    """A layer that chooses among experts which are not found must not pass for a dense one."""
    for part in layer.modules():
        count, chosen = attribute(part, EXPERT_COUNT_NAMES), attribute(part, TOP_K_NAMES)
        if isinstance(count, int) and _is_choice(chosen, count - 1):
            raise InvalidModel(
                f"{type(part).__name__} chooses {chosen} of {count} experts, whose weights cannot be told apart; "
                "describe the model in a layers file (docs/models.md)"
            )


def _expert_count(path: str, module: nn.Module) -> tuple[int, bool]:
    """Experts that a module holds as slices of its weights or as its entries; 0 where it holds none."""
    from torch import nn

    name, kind = path.rpartition(".")[2].lower(), type(module).__name__.lower()
    if "shared" in name:
        return 0, False
    own = [p for p in module.parameters(recurse=False) if p.dim() == 3]
    if own:
        # The least: LongCat-Flash keeps further slices for experts that do nothing.
        count = min(int(p.shape[0]) for p in own)
        named = "expert" in name or "expert" in kind
        if count > 1 and (named or attribute(module, EXPERT_COUNT_NAMES) == count):
            return count, False
    stated = attribute(module, EXPERT_COUNT_NAMES)
    if isinstance(stated, int) and stated > 1 and "expert" in kind and _rows(module, stated):
        return stated, False
    if isinstance(module, nn.ModuleList | nn.ModuleDict) and "expert" in name:
        children = [child for child in module.children() if any(True for _ in child.parameters())]
        shapes = {tuple(tuple(p.shape) for p in child.parameters()) for child in children}
        if len(children) > 1 and len(shapes) == 1 and shapes != {()}:
            return len(children), True
    return 0, False


def _rows(module: nn.Module, count: int) -> bool:
    """Whether a module's own matrices hold the experts one below the other (DBRX)."""
    own = list(module.parameters(recurse=False))
    return len(own) > 1 and all(p.dim() == 2 and p.shape[0] % count == 0 for p in own)


def _block(layer: nn.Module, path: str) -> nn.Module:
    """The module that holds the container."""
    return layer.get_submodule(path.rpartition(".")[0])


def _top_k(layer: nn.Module, path: str, count: int, config: object) -> int:
    """Experts of a token: what the container, its router, the blocks around it or the config say, nearest first."""
    around = path
    while True:
        module = layer.get_submodule(around)
        for part in module.modules():
            value = attribute(part, TOP_K_NAMES)
            if _is_choice(value, count):
                return int(str(value))
        if not around:
            break
        around = around.rpartition(".")[0]
    for holder in _configs(layer, config):
        for name in TOP_K_NAMES[:-1]:
            value = getattr(holder, name, None)
            if _is_choice(value, count):
                return int(str(value))
    raise InvalidModel(
        f"a token of the built model meets an unknown number of its {count} experts, so active parameters and "
        "FLOPs cannot be told; state num_experts_per_tok (or the family's own key) in the config"
    )


def _configs(layer: nn.Module, config: object) -> Iterator[object]:
    """Configs that parts of the layer hold, then the model's."""
    for part in layer.modules():
        held = vars(part).get("config")
        if held is not None:
            yield held
    if config is not None:
        yield config


def _is_choice(value: object, count: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= count


def _container(
    path: str, module: nn.Module, block: nn.Module, count: int, is_list: bool, top_k: int
) -> Experts:
    named = unique_parameters(module)
    if is_list:
        first = next(child for child in module.children() if any(True for _ in child.parameters()))
        shapes = [tuple(p.shape) for p in unique_parameters(first).values()]
        held = list(named.values())
    else:
        own = [p for p in module.parameters(recurse=False) if p.dim() == 3 or _is_bias(p, count)]
        shapes = [tuple(p.shape[1:]) for p in own]
        if not own:
            own = list(module.parameters(recurse=False))
            shapes = [(p.shape[0] // count, p.shape[1]) for p in own]
        held = own
    each = sum(p.numel() for p in held) // count
    matrices, extra = _matrices([shape for shape in shapes if len(shape) == 2], shapes)
    weighed = sum(m.in_features * m.out_features + m.bias for m in matrices) + extra
    if weighed != each:
        matrices, extra = (), each
    return Experts(
        path,
        module,
        block,
        count,
        top_k,
        matrices,
        extra,
        frozenset(id(p) for p in held),
        is_list,
        each * count,
    )


def _is_bias(parameter: nn.Parameter, count: int) -> bool:
    return parameter.dim() == 2 and parameter.shape[0] == count


def _matrices(
    pairs: list[tuple[int, ...]], shapes: list[tuple[int, ...]]
) -> tuple[tuple[ExpertMatrix, ...], int]:
    """Weights in order: all but the last lead from the width that they share, the last leads back to it."""
    vectors = [shape[0] if len(shape) == 1 else 0 for shape in shapes if len(shape) != 2]
    rest = sum(vectors)
    if not pairs:
        return (), rest
    common = set(pairs[0]).intersection(*(set(pair) for pair in pairs[1:]))
    width = min(common) if len(common) == 1 else (pairs[0][1] if pairs[0][1] in common else pairs[0][0])
    found = []
    for index, (first, second) in enumerate(pairs):
        other = first * second // width if width in (first, second) else 0
        if not other:
            return (), rest + sum(a * b for a, b in pairs)
        back = index == len(pairs) - 1 and len(pairs) > 1
        inside, outside = (other, width) if back else (width, other)
        bias = outside if outside in vectors else 0
        if bias:
            vectors.remove(bias)
            rest -= bias
        found.append(ExpertMatrix(inside, outside, bias))
    return tuple(found), rest
