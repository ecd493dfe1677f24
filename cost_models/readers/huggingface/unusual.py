"""Settings of configs that change what a model computes and not what it costs: handed on where they are unusual.

A reader needs none of them. Whoever builds the model has to follow them or to refuse it.
"""

from collections.abc import Mapping
from typing import Final

from cost_models.readers.huggingface.config import Scalar

PREFIX: Final = "config."
USUAL: Final[Mapping[str, Mapping[str, object]]] = {
    "deepseek_v2": {"norm_topk_prob": False},
    "deepseek_v3": {"rope_interleave": True},
    "falcon": {"alibi": False},
    "gemma2": {"use_bidirectional_attention": False},
    "gemma3_text": {"use_bidirectional_attention": False},
    "gpt2": {"scale_attn_by_inverse_layer_idx": False},
    "olmoe": {"clip_qkv": None},
}
"""By family: what a setting is in every published model, or where it does nothing (transformers 5.24)."""


def unusual_settings(raw: Mapping[str, object], family: str) -> dict[str, Scalar]:
    """Settings that a config states otherwise, by `config.` and their name; none and null are as usual."""
    found: dict[str, Scalar] = {}
    for key, usual in USUAL.get(family, {}).items():
        value = raw.get(key)
        if value is not None and value != usual:
            found[f"{PREFIX}{key}"] = value if isinstance(value, str | int | float) else str(value)
    return found
