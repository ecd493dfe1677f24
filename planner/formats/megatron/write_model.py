"""A model -> the Megatron-LM arguments that build it; what they cannot build is refused by name."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeVar

from cost_models.errors import BadInput
from cost_models.operators import Activation, Attention, Embedding, GroupedLinear, Linear, Norm, Router
from cost_models.operators.base import Operator
from cost_models.operators.embedding import PositionTable
from cost_models.specs.model import LayerKind, ModelSpec, Role
from planner.formats.megatron.tokens import Raw

O = TypeVar("O", bound=Operator)  # noqa: E741 - an operator of one family

BLOCK_SIGNS: Final = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
"""Kinds of single sub-layers, as --hybrid-layer-pattern spells them."""

FUNCTIONS: Final[Mapping[tuple[bool, str], str]] = {
    (True, "silu"): "swiglu",
    (False, "relu2"): "squared-relu",
    (False, "gelu"): "",
    (False, "gelu_new"): "",
    (False, "gelu_pytorch_tanh"): "",
}
"""Feed-forwards that have an argument, or are the default (GELU)."""


def model_arguments(model: ModelSpec) -> Raw:
    """Arguments of the model alone; raises BadInput naming the first thing that Megatron-LM's builders lack."""
    if len(model.stacks) > 1 or model.is_vision:
        raise BadInput(
            f"{model.name} has the stacks {', '.join(s.name for s in model.stacks)}; Megatron-LM arguments describe "
            "one decoder, export to fsdp2 or accelerate"
        )
    blocks = _blocks(model)
    found: Raw = {
        "num-layers": str(model.num_layers),
        "hidden-size": str(model.hidden_size),
        "num-attention-heads": str(max(model.num_attention_heads, 1)),
        "seq-length": "",
        "max-position-embeddings": "",
        "vocab-size": str(model.vocab_size),
    }
    found |= _norms(model, blocks) | _positions(model) | _attention(model, blocks) | _feed_forward(blocks)
    found |= _routing(model, blocks) | _pattern(model)
    if not model.tied_embeddings:
        found["untie-embeddings-and-output-weights"] = "true"
    predictions = sum(layer.count for layer in model.layers if layer.role is Role.MTP)
    if predictions:
        found["mtp-num-layers"] = str(predictions)
    return {name: value for name, value in found.items() if value}


def program_of(model: ModelSpec) -> str:
    """The script that trains it: gpt, or hybrid where layers are single sub-layers."""
    return "hybrid" if _is_hybrid(model) else "gpt"


def _blocks(model: ModelSpec) -> tuple[LayerKind, ...]:
    """Kinds of the blocks, each once."""
    names = dict.fromkeys(layer.kind for layer in model.layers if layer.role is Role.BLOCK)
    return tuple(model.kinds[name] for name in names)


def _is_hybrid(model: ModelSpec) -> bool:
    names = {layer.kind for layer in model.layers if layer.role is Role.BLOCK}
    return "mamba" in names and names <= set(BLOCK_SIGNS)


def _of(kinds: Iterable[LayerKind], family: type[O], name: str = "") -> Iterator[O]:
    """Operators of one family, and of one name where asked."""
    for kind in kinds:
        for operator in kind.operators:
            if isinstance(operator, family) and (not name or operator.name == name):
                yield operator


def _one(values: Iterable[object], what: str) -> object:
    """The value that all layers share; raises BadInput where there are several."""
    different = tuple(dict.fromkeys(values))
    if len(different) > 1:
        shown = ", ".join(str(value) for value in different[:4])
        raise BadInput(
            f"layers have different {what} ({shown}); Megatron-LM has one for all, export to fsdp2 or accelerate"
        )
    return different[0] if different else None


def _norms(model: ModelSpec, blocks: tuple[LayerKind, ...]) -> Raw:
    """RMSNorm or LayerNorm, and its epsilon."""
    streams = [
        norm for norm in _of(blocks, Norm) if norm.name.endswith(("attn_norm", "mlp_norm", "mamba_norm"))
    ]
    kind = _one((norm.kind for norm in streams), "norms")
    found = {"normalization": "RMSNorm" if kind == "rms" else "LayerNorm"}
    epsilon = model.semantics.get("norm_eps")
    if isinstance(epsilon, float):
        found["norm-epsilon"] = f"{epsilon:g}"
    return found


def _positions(model: ModelSpec) -> Raw:
    """Learned positions, rotary ones with their base and scaling, or none."""
    tables = [
        each for kind in model.kinds.values() for each in kind.operators if isinstance(each, PositionTable)
    ]
    if tables:
        raise BadInput(
            f"{model.name} has a table of relative positions, which Megatron-LM's GPT builder lacks"
        )
    semantics = model.semantics
    kind = semantics.get("position", "rope")
    if kind == "learned":
        return {"position-embedding-type": "learned_absolute"}
    if kind != "rope":
        return {"position-embedding-type": "none"}
    found = {"position-embedding-type": "rope"}
    theta = semantics.get("rope_theta")
    if isinstance(theta, int | float):
        found["rotary-base"] = f"{theta:.0f}"
    if semantics.get("rope_scaling.rope_type") == "llama3":
        found["use-rope-scaling"] = "true"
        found["rope-scaling-factor"] = f"{semantics.get('rope_scaling.factor', 8.0)}"
    return found


def _attention(model: ModelSpec, blocks: tuple[LayerKind, ...]) -> Raw:
    """Heads, key/value groups, head sizes, biases and norms of queries and keys; or latent attention."""
    cores = tuple(_of(blocks, Attention))
    if not cores:
        return {}
    shape = _one(((a.heads, a.kv_heads, a.qk_dim, a.v_dim) for a in cores), "attention shapes")
    assert isinstance(shape, tuple)
    heads, kv_heads, qk_dim, v_dim = shape
    latent = next(_of(blocks, Linear, "kv_up"), None)
    if latent is not None:
        return _latent(blocks, latent, heads, qk_dim, v_dim)
    found: Raw = {"num-attention-heads": str(heads), "kv-channels": str(qk_dim)}
    if kv_heads != heads:
        found |= {"group-query-attention": "true", "num-query-groups": str(kv_heads)}
    qkv, proj = next(_of(blocks, Linear, "qkv"), None), next(_of(blocks, Linear, "proj"), None)
    if qkv is None or proj is None:
        raise BadInput(f"{model.name}: its attention has no fused q/k/v projection, which Megatron-LM has")
    if not proj.bias:
        found["disable-bias-linear"] = "true"
        if qkv.bias:
            found["add-qkv-bias"] = "true"
    if next(_of(blocks, Norm, "q_norm"), None) is not None:
        found["qk-layernorm"] = "true"
    return found


def _latent(blocks: tuple[LayerKind, ...], up: Linear, heads: int, qk_dim: int, v_dim: int) -> Raw:
    """Multi-head latent attention."""
    down = next(_of(blocks, Linear, "kv_down"))
    rope_dim = sum(part.features for part in down.parts) - up.in_features
    queries = next(_of(blocks, Linear, "q_down"), None)
    found = {
        "num-attention-heads": str(heads),
        "multi-latent-attention": "true",
        "kv-lora-rank": str(up.in_features),
        "qk-head-dim": str(qk_dim - rope_dim),
        "qk-pos-emb-head-dim": str(rope_dim),
        "v-head-dim": str(v_dim),
        "disable-bias-linear": "true",
        "qk-layernorm": "true",
    }
    if queries is not None:
        found["q-lora-rank"] = str(sum(part.features for part in queries.parts))
    return found


def _feed_forward(blocks: tuple[LayerKind, ...]) -> Raw:
    """Width and function of the dense feed-forward."""
    found: Raw = {}
    functions = {
        (each.gated, each.function) for each in _of(blocks, Activation) if each.name in ("act", "expert_act")
    }
    if len(functions) > 1:
        raise BadInput(
            f"layers have different feed-forward functions {sorted(functions)}; Megatron-LM has one"
        )
    for gated, function in functions:
        if (gated, function) not in FUNCTIONS:
            shape = "gated" if gated else "plain"
            raise BadInput(
                f"a {shape} feed-forward with {function} is not among Megatron-LM's arguments (SwiGLU, GELU, squared "
                "ReLU); export to fsdp2 or accelerate"
            )
        if FUNCTIONS[gated, function]:
            found[FUNCTIONS[gated, function]] = "true"
    width = _one((down.in_features for down in _of(blocks, Linear, "down")), "feed-forward widths")
    if width is not None:
        found["ffn-hidden-size"] = str(width)
    return found


def _routing(model: ModelSpec, blocks: tuple[LayerKind, ...]) -> Raw:
    """Experts, how tokens are routed, and which layers route."""
    router = next(_of(blocks, Router), None)
    if router is None:
        return {}
    expert = next(_of(blocks, GroupedLinear, "expert_down"))
    found = {
        "num-experts": str(router.experts),
        "moe-router-topk": str(router.top_k),
        "moe-ffn-hidden-size": str(expert.in_features),
        "moe-grouped-gemm": "true",
        "moe-router-dtype": "fp32",
        **_scores(model, router),
    }
    shared = next(_of(blocks, Linear, "shared_down"), None)
    if shared is not None:
        found["moe-shared-expert-intermediate-size"] = str(shared.in_features)
        if router.shared_gate:
            found["moe-shared-expert-gate"] = "true"
    routes = [layer.kind for layer in model.expanded(Role.BLOCK)]
    routed = {kind.name for kind in blocks if any(isinstance(each, Router) for each in kind.operators)}
    flags = [name in routed for name in routes]
    if not all(flags) and not _is_hybrid(model):
        found["moe-layer-freq"] = _frequency(flags)
    return found


def _scores(model: ModelSpec, router: Router) -> Raw:
    """How the router scores, from the semantics of the model."""
    semantics = model.semantics
    found: Raw = {}
    if semantics.get("router_scoring") == "sigmoid":
        found["moe-router-score-function"] = "sigmoid"
    if semantics.get("router_bias_correction"):
        found["moe-router-enable-expert-bias"] = "true"
    if router.groups > 1:
        found |= {
            "moe-router-num-groups": str(router.groups),
            "moe-router-group-topk": str(router.kept_groups),
        }
    scale = semantics.get("router_scaling")
    if isinstance(scale, int | float) and scale != 1:
        found["moe-router-topk-scaling-factor"] = f"{scale:g}"
    return found


def _frequency(flags: list[bool]) -> str:
    """`([0]*3+[1]*58)`: runs of layers that do not and do route."""
    runs: list[list[int]] = []
    for flag in flags:
        if runs and runs[-1][0] == flag:
            runs[-1][1] += 1
        else:
            runs.append([int(flag), 1])
    return "(" + "+".join(f"[{bit}]*{count}" for bit, count in runs) + ")"


def _pattern(model: ModelSpec) -> Raw:
    """The order of single sub-layers, for hybrids."""
    if not _is_hybrid(model):
        return {}
    signs = "".join(BLOCK_SIGNS[layer.kind] for layer in model.expanded(Role.BLOCK))
    scan = next(each for kind in _blocks(model) for each in kind.operators if each.family == "scan")
    return {"hybrid-layer-pattern": signs, **_mamba(scan)}


def _mamba(scan: Operator) -> Raw:
    """Sizes of the mixers."""
    values = scan.model_dump()
    names = {
        "heads": "mamba-num-heads",
        "head_dim": "mamba-head-dim",
        "state": "mamba-state-dim",
        "groups": "mamba-num-groups",
    }
    return {flag: str(values[key]) for key, flag in names.items() if key in values}


def learned_positions(model: ModelSpec) -> int:
    """Rows of the learned position table; 0 without one."""
    tables = [each for kind in model.kinds.values() for each in kind.operators if isinstance(each, Embedding)]
    return max((each.positions for each in tables), default=0)
