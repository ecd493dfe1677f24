"""What single modules of a layer send to the host: tensors that none but offloaded modules keep.

Megatron-Core's fine-grained offload wraps the forward of a module and moves all that autograd keeps inside
(core/pipeline_parallel/fine_grained_activation_offload.py). A tensor that a module outside keeps too stays on the
device, and so does one of fewer than 2^20 elements. Norms that are fused into the linear behind them are no modules of
their own: attn_norm stands alone before latent attention, mlp_norm before routed experts.
"""

from typing import Final

import numpy as np

from cost_models.layer_walk import dropped_by, saved_tensors
from cost_models.operators import Activation, Attention, GroupedLinear, Linear, Norm, Rope, Router
from cost_models.operators.base import Shard, Style
from cost_models.operators.frozen import saved_of
from cost_models.specs.model import LayerKind, ModelSpec
from cost_models.units import Num

MODULES: Final = ("attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm", "expert_fc1", "moe_act")
"""Modules that core 0.19 offloads one by one (transformer_config.py: offload_modules)."""
LEAST_ELEMENTS: Final = 2.0**20
"""--min-offloaded-tensor-size, its default."""


def modules_of(model: ModelSpec) -> tuple[str, ...]:
    """The modules that some block of a model has."""
    found = {name for kind in model.kinds.values() for name, inside in _operators(kind).items() if inside}
    return tuple(name for name in MODULES if name in found)


def operators_of(kind: LayerKind, module: str) -> frozenset[str]:
    """Names of a layer's operators that run inside a module; empty where the layer has no such module of its own."""
    return frozenset(_operators(kind).get(module, ()))


def _operators(kind: LayerKind) -> dict[str, set[str]]:
    """Names of a layer's operators by the module that they run inside."""
    ops = kind.operators
    attention = {op.name for op in ops if isinstance(op, Attention)}
    if not attention:
        return {}
    is_latent = any(op.name == "kv_down" for op in ops)
    alone = {"attn_norm"} if is_latent else set()
    alone |= {"mlp_norm"} if any(isinstance(op, Router) for op in ops) else set()
    before = next(i for i, op in enumerate(ops) if isinstance(op, Rope | Attention))
    norms = {op.name for op in ops if isinstance(op, Norm) and op.name in alone}
    return {name: {name} for name in norms} | {
        "qkv_linear": {op.name for op in ops[:before]} - alone,
        "core_attn": attention,
        "attn_proj": {op.name for op in ops if isinstance(op, Linear) and set(op.inputs) & attention},
        "expert_fc1": set([op.name for op in ops if isinstance(op, GroupedLinear)][:1]),
        "moe_act": {op.name for op in ops if isinstance(op, Activation) and op.expert_top_k},
    }


def moved_bytes(
    kind: LayerKind, modules: tuple[str, ...], at: Shard, style: Style, scopes: tuple[str, ...]
) -> Num:
    """Bytes of one layer's micro-batch that leave the device after its forward, under recomputed scopes."""
    inside = frozenset(name for module in modules for name in operators_of(kind, module))
    if not inside:
        return 0.0
    kept = saved_tensors(kind.operators, at, style, dropped_by(kind, scopes))
    savers: dict[str, set[str]] = {}
    elements: dict[str, Num] = {}
    for op in kind.operators:
        for tensor in saved_of(op, at, style):
            savers.setdefault(tensor.id, set()).add(op.name)
            elements[tensor.id] = np.maximum(elements.get(tensor.id, 0.0), tensor.elements)
    total: Num = 0.0
    for name, (_, size) in kept.items():
        if savers.get(name, {""}) <= inside:
            total = total + np.where(np.asarray(elements[name]) >= LEAST_ELEMENTS, size, 0.0)
    return total
