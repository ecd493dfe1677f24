"""Other names of a config's keys: renamed where the family's class knows them, refused where two of them disagree.

A key under a name that the family does not read would be ignored and a default taken in its place, which is a wrong
count without a word; so a stated name and an assumed one for the same thing are refused too.
"""

from collections.abc import Mapping
from typing import Final

from cost_models.errors import InvalidModel
from cost_models.specs.model import ModelSpec

_GPT2: Final = {
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "max_position_embeddings": "n_positions",
}
_PAIR: Final = {
    "hidden_size": "d_model",
    "num_attention_heads": "encoder_attention_heads",
    "num_hidden_layers": "encoder_layers",
}
_SWITCH: Final = {
    "hidden_size": "d_model",
    "num_attention_heads": "num_heads",
    "num_hidden_layers": "num_layers",
}
_T5: Final = {**_SWITCH, "head_dim": "d_kv"}
_ROUTED: Final = {"num_local_experts": "n_routed_experts"}
_MTP: Final = {"num_mtp_layers": "num_nextn_predict_layers"}
_LOCAL: Final = {"num_experts": "num_local_experts"}
_PLAIN: Final = {"num_local_experts": "num_experts"}
_SARVAM: Final = {
    **_ROUTED,
    **_MTP,
    "num_experts": "n_routed_experts",
    "num_shared_experts": "n_shared_experts",
}
_BLOCK_TYPES: Final = {"layer_types": "layers_block_type"}

OTHER_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    "axk1": _ROUTED,
    "bailing_hybrid": {
        "model_max_length": "max_position_embeddings",
        "moe_renormalize": "norm_topk_prob",
        "num_expert_group": "n_group",
        "num_experts_per_token": "num_experts_per_tok",
        "num_nextn_predict_layers": "num_mtp_layers",
        "num_shared_experts": "n_shared_experts",
        "num_experts": "n_routed_experts",
        **_ROUTED,
    },
    "bamba": _BLOCK_TYPES,
    "bloom": {"num_hidden_layers": "n_layer", "num_attention_heads": "n_head"},
    "codegen": _GPT2,
    "dbrx": {
        "hidden_size": "d_model",
        "num_attention_heads": "n_heads",
        "num_hidden_layers": "n_layers",
        "max_position_embeddings": "max_seq_len",
    },
    "deepseek_v2": {"num_experts": "n_routed_experts"},
    "deepseek_v3": {**_ROUTED, **_MTP},
    "deepseek_v32": _ROUTED,
    "distilbert": {"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"},
    "ernie4_5_moe": {"num_experts": "moe_num_experts", "num_experts_per_tok": "moe_k"},
    "falcon_h1": _BLOCK_TYPES,
    "glm4_moe": {**_ROUTED, **_MTP},
    "glm4_moe_lite": _ROUTED,
    "glm_moe_dsa": _ROUTED,
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2,
    "gpt_neo": {"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"},
    "gpt_oss": _LOCAL,
    "gptj": _GPT2,
    "granitemoehybrid": {"layers_block_type": "layer_types"},
    "hunyuan_v1_moe": {"num_experts_per_tok": "moe_topk", **_PLAIN},
    "hy_v3": _PLAIN,
    "jamba": _PLAIN,
    "kimi_k2": {**_ROUTED, **_MTP},
    "kimi_linear": {
        "max_position_embeddings": "model_max_length",
        "norm_topk_prob": "moe_renormalize",
        "n_group": "num_expert_group",
        "num_experts_per_tok": "num_experts_per_token",
        "n_shared_experts": "num_shared_experts",
        **_PLAIN,
    },
    "mimo_v2_flash": _ROUTED,
    "minimax": _LOCAL,
    "minimax_m2": _LOCAL,
    "mixtral": _LOCAL,
    "mpt": {"hidden_size": "d_model", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"},
    "nemotron_h": {**_BLOCK_TYPES, **_ROUTED},
    "olmoe": _PLAIN,
    "qwen3_moe": _PLAIN,
    "sarvam_mla": _SARVAM,
    "sarvam_moe": {**_SARVAM, "use_qkv_bias": "attention_bias"},
    "swin": {"num_attention_heads": "num_heads"},
    "swinv2": {"num_attention_heads": "num_heads"},
    "switch_transformers": _SWITCH,
    "xglm": {
        "hidden_size": "d_model",
        "num_attention_heads": "attention_heads",
        "num_hidden_layers": "num_layers",
    },
    "zamba": {**_BLOCK_TYPES, "head_dim": "attention_head_dim"},
    "zamba2": {**_BLOCK_TYPES, "head_dim": "attention_head_dim"},
    **dict.fromkeys(
        (
            "bart",
            "blenderbot",
            "blenderbot-small",
            "m2m_100",
            "marian",
            "mbart",
            "nllb-moe",
            "pegasus",
            "plbart",
        ),
        _PAIR,
    ),
    "t5": _T5,
    "mt5": _T5,
    "umt5": _T5,
}
"""Family -> name -> the name its reader knows: the attribute maps of the configuration classes of transformers 5.24."""

ONE_THING: Final = (
    ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    ("num_experts_per_tok", "num_experts_per_token", "moe_k", "moe_topk", "moe_top_k", "top_k_experts"),
    ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"),
    ("hidden_size", "n_embd", "d_model", "n_embed"),
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    ("num_key_value_heads", "num_kv_heads", "n_head_kv"),
    ("intermediate_size", "ffn_dim", "d_ff", "n_inner"),
)
"""Names under which configs of different families state one and the same size."""

OWN_MEANING: Final[Mapping[str, frozenset[str]]] = {
    "falcon": frozenset({"num_kv_heads", "n_head_kv"}),  # the first is ignored under multi_query
    "swin": frozenset({"num_layers"}),  # stages
    "swinv2": frozenset({"num_layers"}),
}
"""Names that mean something else in a family."""


def settled(raw: Mapping[str, object], family: str) -> dict[str, object]:
    """The config under its family's own names; raises InvalidModel naming both keys where two disagree."""
    found = dict(raw)
    for other, own in OTHER_NAMES.get(family, {}).items():
        if other not in found:
            continue
        value = found.pop(other)
        if own not in found or found[own] is None:
            found[own] = value
        elif value is not None and value != found[own]:
            later = sorted((other, own), key=list(raw).index)
            raise _disagree(later[0], raw[later[0]], later[1], raw[later[1]])
    _check_one_thing(found, family)
    _check_rope(found)
    _check_layer_types(found)
    return found


def renamed(raw: Mapping[str, object], family: str, error: InvalidModel) -> InvalidModel:
    """The same error under the name that the config uses for the key, which the sentence holds."""
    names = error.pointer.split("/")
    if not any(name in error.detail for name in names if name and not name.isdecimal()):
        error = InvalidModel(f"{names[-1]}: {error.detail}", pointer=error.pointer, allowed=error.allowed)
    first, _, rest = error.pointer.removeprefix("/").partition("/")
    known = OTHER_NAMES.get(family, {})
    other = next((each for each, own in known.items() if own == first and each in raw and own not in raw), "")
    if not other:
        return error
    pointer = f"/{other}/{rest}" if rest else f"/{other}"
    return InvalidModel(error.detail.replace(first, other), pointer=pointer, allowed=error.allowed)


def check_assumed(raw: Mapping[str, object], model: ModelSpec) -> None:
    """Refuse a size that is stated under a name which the family does not read, and was therefore assumed."""
    apart = OWN_MEANING.get(model.family, frozenset())
    for assumed in model.assumed:
        names = next((names for names in ONE_THING if assumed.key in names), ())
        for name in names:
            value = raw.get(name)
            if name == assumed.key or name in apart or value is None or str(value) == assumed.value:
                continue
            raise InvalidModel(
                f"{name} is {str(value)[:60]}, but a {model.family} config names it {assumed.key}, which is absent; "
                "rename it",
                pointer=f"/{name}",
            )


def _check_one_thing(raw: Mapping[str, object], family: str) -> None:
    """Two names of one size that both hold a whole number must hold the same."""
    apart = OWN_MEANING.get(family, frozenset())
    for names in ONE_THING:
        stated = [name for name in raw if name in names and name not in apart and _is_whole(raw[name])]
        for name in stated[1:]:
            if raw[name] != raw[stated[0]]:
                raise _disagree(stated[0], raw[stated[0]], name, raw[name])


def _check_rope(raw: Mapping[str, object]) -> None:
    """rope_scaling and rope_parameters, or rope_theta beside them, say the same of what both say."""
    new, old = raw.get("rope_parameters"), raw.get("rope_scaling")
    if not isinstance(new, Mapping) or any(isinstance(value, Mapping) for value in new.values()):
        return
    stated = {f"rope_scaling.{_rope_key(key)}": value for key, value in _items(old)}
    if "rope_theta" in raw:
        stated["rope_theta"] = raw["rope_theta"]
    for name, value in stated.items():
        key = name.rpartition(".")[2]
        other = {_rope_key(each): inner for each, inner in _items(new)}.get(key)
        if value is not None and other is not None and value != other:
            raise _disagree(name, value, f"rope_parameters.{key}", other)


def _items(value: object) -> list[tuple[str, object]]:
    return [(str(key), inner) for key, inner in value.items()] if isinstance(value, Mapping) else []


def _rope_key(key: str) -> str:
    return "rope_type" if key == "type" else key


def _check_layer_types(raw: Mapping[str, object]) -> None:
    """layer_types names every layer."""
    types, layers = raw.get("layer_types"), raw.get("num_hidden_layers")
    if isinstance(types, list | tuple) and _is_whole(layers) and len(types) != layers:
        raise InvalidModel(
            f"layer_types names {len(types)} layers but num_hidden_layers is {layers}; make the two agree",
            pointer="/layer_types",
        )


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _disagree(first: str, value: object, second: str, other: object) -> InvalidModel:
    return InvalidModel(
        f"{first} is {str(value)[:60]} and {second} is {str(other)[:60]}, two names of one thing; "
        "make the two agree or drop one of them",
        pointer=f"/{second.partition('.')[0]}",
    )
