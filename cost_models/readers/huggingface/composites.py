"""What the families of a vision tower and a text model are made of."""

from collections.abc import Mapping
from dataclasses import dataclass

from cost_models.readers.huggingface import towers, towers_more
from cost_models.readers.huggingface.config import Default, options, sizes
from cost_models.readers.huggingface.towers import TowerReader


@dataclass(frozen=True, slots=True)
class Composite:
    """What a family is made of. `text` maps the text model's model_type to its reader, the first one the default."""

    text: Mapping[str, str]
    vision: tuple[str, ...]
    tower: TowerReader
    tower_defaults: Mapping[str, Default]
    own: Mapping[str, Default]
    needs_tower: bool = False
    """Whether the tower must be stated: the class's own default is not that of the tower's class."""
    optional_tower: bool = False
    """Whether a model without vision_config has no tower."""
    flat: bool = False
    """Whether the text model's keys may stand beside the tower's (Qwen2-VL as published)."""
    text_ties: bool = False
    """Whether a table that the text model ties is tied, though the whole does not say so."""
    text_keys: tuple[tuple[str, ...], ...] = ()
    """Keys, with their other names, that the text model must state: its defaults are not those of the reader."""


_UNTIED = sizes(tie_word_embeddings=False)
HEAD_OF_ITS_OWN = ("llama4",)
"""Families whose class has an untied head whatever the config says."""
_ROUTED_KEYS = (
    ("vocab_size",),
    ("hidden_size",),
    ("intermediate_size",),
    ("num_hidden_layers",),
    ("num_attention_heads",),
    ("num_key_value_heads",),
    ("head_dim",),
    ("moe_intermediate_size",),
    ("num_experts", "num_local_experts"),
    ("num_experts_per_tok",),
)
_DENSE_KEYS = (
    ("vocab_size",),
    ("hidden_size",),
    ("intermediate_size",),
    ("num_hidden_layers",),
    ("num_attention_heads",),
    ("num_key_value_heads",),
)
COMPOSITES: Mapping[str, Composite] = {
    "llava": Composite(
        text={"llama": "llama"},
        vision=("clip_vision_model",),
        tower=towers.clip_tower,
        tower_defaults=towers.CLIP,
        own={
            **sizes(tie_word_embeddings=False, multimodal_projector_bias=True),
            **options(
                projector_hidden_act="gelu",
                vision_feature_layer=-2,
                vision_feature_select_strategy="default",
            ),
        },
        needs_tower=True,
    ),
    "gemma3": Composite(
        text={"gemma3_text": "gemma3_text"},
        vision=("siglip_vision_model",),
        tower=towers.siglip_tower,
        tower_defaults=towers.SIGLIP,
        own={**sizes(tie_word_embeddings=True), **options(mm_tokens_per_image=256)},
    ),
    "llama4": Composite(
        text={"llama4_text": "llama4_text"},
        vision=("llama4_vision_model",),
        tower=towers.llama4_tower,
        tower_defaults=towers.LLAMA4,
        own=_UNTIED,
    ),
    "qwen3_vl_moe": Composite(
        text={"qwen3_vl_moe_text": "qwen3_moe"},
        vision=("qwen3_vl_moe_vision", "qwen3_vl_moe"),
        tower=towers.qwen_tower,
        tower_defaults=towers.QWEN,
        own=_UNTIED,
        text_keys=_ROUTED_KEYS,
    ),
    "qwen3_5_moe": Composite(
        text={"qwen3_5_moe_text": "qwen3_5_moe_text"},
        vision=("qwen3_5_moe_vision", "qwen3_5_moe"),
        tower=towers.qwen_tower,
        tower_defaults=towers.QWEN,
        own=_UNTIED,
    ),
    "qwen3_vl": Composite(
        text={"qwen3_vl_text": "qwen3"},
        vision=("qwen3_vl_vision", "qwen3_vl"),
        tower=towers.qwen_tower,
        tower_defaults=towers.QWEN,
        own=_UNTIED,
    ),
    "qwen3_5": Composite(
        text={"qwen3_5_text": "qwen3_5_text"},
        vision=("qwen3_5_vision", "qwen3_5"),
        tower=towers.qwen_tower,
        tower_defaults=towers.QWEN,
        own=_UNTIED,
    ),
    "qwen2_vl": Composite(
        text={"qwen2_vl_text": "qwen2"},
        vision=("qwen2_vl_vision", "qwen2_vl"),
        tower=towers_more.qwen2_tower,
        tower_defaults=towers_more.QWEN2,
        own=_UNTIED,
        flat=True,
        text_ties=True,
        text_keys=_DENSE_KEYS,
    ),
    "qwen2_5_vl": Composite(
        text={"qwen2_5_vl_text": "qwen2"},
        vision=("qwen2_5_vl_vision", "qwen2_5_vl"),
        tower=towers_more.qwen2_5_tower,
        tower_defaults=towers_more.QWEN2_5,
        own=_UNTIED,
        flat=True,
        text_ties=True,
        text_keys=_DENSE_KEYS,
    ),
    "gemma4": Composite(
        text={"gemma4_text": "gemma4_text"},
        vision=("gemma4_vision",),
        tower=towers_more.gemma4_tower,
        tower_defaults=towers_more.GEMMA4,
        own={**sizes(tie_word_embeddings=True), **options(vision_soft_tokens_per_image=280)},
        optional_tower=True,
    ),
    "gemma4_unified": Composite(
        text={"gemma4_unified_text": "gemma4_unified_text"},
        vision=("gemma4_unified_vision",),
        tower=towers_more.no_tower,
        tower_defaults={},
        own=sizes(tie_word_embeddings=True),
        optional_tower=True,
    ),
    "mllama": Composite(
        text={"mllama_text_model": "mllama_text_model"},
        vision=("mllama_vision_model",),
        tower=towers_more.no_tower,
        tower_defaults={},
        own=_UNTIED,
    ),
    "mistral3": Composite(
        text={"mistral": "mistral", "ministral3": "ministral3"},
        vision=("pixtral",),
        tower=towers_more.pixtral_tower,
        tower_defaults=towers_more.PIXTRAL,
        own={
            **sizes(tie_word_embeddings=True, multimodal_projector_bias=False, spatial_merge_size=2),
            **options(projector_hidden_act="gelu", vision_feature_layer=-1),
        },
        needs_tower=True,
        text_keys=_DENSE_KEYS,
    ),
}
"""The configuration classes of these families, transformers 5.24."""
