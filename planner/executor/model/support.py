"""Which operators and settings of a model can be built, so that a run is refused by name before it is launched."""

from collections.abc import Mapping, Sequence

from cost_models.operators.base import Operator
from cost_models.specs.model import ModelSpec, Role
from planner.executor.model.operators.functions import FUNCTIONS
from planner.executor.model.semantics import ROPE_PREFIXES
from planner.executor.model.wiring import Regions, wire

FAMILIES = frozenset(
    {
        "activation",
        "attention",
        "batch_norm",
        "class_loss",
        "combine",
        "conv2d",
        "cross_entropy",
        "dispatch",
        "embedding",
        "grouped_linear",
        "linear",
        "lm_head",
        "norm",
        "pool",
        "residual",
        "rope",
        "router",
    }
)
"""Operator families that have a module."""


ROPE_KINDS = frozenset({"default", "linear", "dynamic", "llama3", "yarn"})
"""Scalings of rotary frequencies that can be computed."""

POSITIONS = frozenset({"rope", "learned", "alibi", "none"})
ROUTERS = frozenset({"softmax", "sigmoid", "softmax_of_top_k"})

SETTINGS = frozenset(
    {
        "activation",
        "activation_limit",
        "attention_gate",
        "attention_multiplier",
        "attention_scaled",
        "attention_soft_cap",
        "causal",
        "classes",
        "config.rope_interleave",
        "embedding_multiplier",
        "embedding_scale",
        "logit_scale",
        "logit_soft_cap",
        "logits_scaling",
        "norm",
        "norm_eps",
        "norm_weight_offset",
        "parallel_residual",
        "position",
        "position_offset",
        "query_pre_attn_scalar",
        "residual_multiplier",
        "rope_interleaved",
        "rope_on",
        "rope_theta",
        "rope_theta_sliding",
        "rotary_dim",
        "rotated_features",
        "router_bias_correction",
        "router_groups",
        "router_groups_kept",
        "router_normalise_top_k",
        "router_scaling",
        "router_scoring",
    }
)
"""Settings of a model (ModelSpec.semantics) that the modules follow."""

HARMLESS: Mapping[str, object] = {"residual_after_norm": False, "scale_embedding": False, "clip_qkv": None}
"""Settings that change nothing at this value, and cannot be built at another."""


def unsupported_operators(model: ModelSpec, *, predictions: bool = False) -> tuple[str, ...]:
    """What cannot be built, by name: operator families, features of operators, settings; empty where all can."""
    found: list[str] = []
    if len(model.stacks) > 1:
        found.append("several stacks (" + ", ".join(stack.name for stack in model.stacks) + ")")
    for kind in dict.fromkeys(
        layer.kind for layer in model.layers if predictions or layer.role is not Role.MTP
    ):
        operators = model.kinds[kind].operators
        for operator in operators:
            found += _operator(operator)
        found += _wiring(kind, operators)
    found += _settings(model)
    return tuple(dict.fromkeys(found))


def _wiring(kind: str, operators: Sequence[Operator]) -> list[str]:
    """Tensors that an operator reads and none writes."""
    try:
        wire(operators, Regions(tensor_parallel=True))
    except KeyError as error:
        return [f"layers of kind {kind} (they read {error.args[0]!r}, which none of their operators writes)"]
    return []


def _operator(operator: Operator) -> list[str]:
    family: str = getattr(operator, "family", type(operator).__name__)
    if family not in FAMILIES:
        return [family]
    features = (
        ("cross", "cross-attention"),
        ("relative_buckets", "relative position buckets"),
        ("on_context", "keys and values of another stack"),
    )
    found = [text for name, text in features if getattr(operator, name, False)]
    if getattr(operator, "position_width", 0) not in (0, getattr(operator, "width", 0)):
        found.append("positions wider than the table")
    function = getattr(operator, "function", None)
    if function is not None and function not in FUNCTIONS:
        found.append(f"activation function {function}")
    return found


def _settings(model: ModelSpec) -> list[str]:
    """Settings that no module follows, or that have a value none knows."""
    found = []
    for key, value in model.semantics.items():
        if key.startswith(ROPE_PREFIXES):
            if key.endswith(("rope_type", ".type")) and value not in ROPE_KINDS:
                found.append(f"rotary scaling {value}")
        elif key in HARMLESS:
            found += [f"{key} {value}"] if value != HARMLESS[key] else []
        elif key not in SETTINGS:
            found.append(f"setting {key}")
    for key, known in (("position", POSITIONS), ("router_scoring", ROUTERS)):
        value = model.semantics.get(key)
        if value is not None and value not in known:
            found.append(f"{key} {value}")
    return found
