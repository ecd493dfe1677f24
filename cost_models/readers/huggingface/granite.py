"""Granite, dense: Llama's block with multipliers on embedding, branches, scores and logits."""

from collections.abc import Mapping

from cost_models.readers.blocks.feed_forward import MlpShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import attention_shape, read_decoder
from cost_models.readers.huggingface.config import Config, Default, options
from cost_models.readers.huggingface.dense import rope_of, uniform
from cost_models.readers.huggingface.llama import LLAMA_DEFAULTS
from cost_models.specs.model import ModelSpec

MULTIPLIERS = ("embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier")
DEFAULTS: Mapping[str, Default] = {**LLAMA_DEFAULTS, **options(**dict.fromkeys(MULTIPLIERS, 1.0))}
"""GraniteConfig of transformers 5.24: the sizes of LlamaConfig."""


def read_granite(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type granite."""
    config = Config(raw, DEFAULTS, "granite")
    decoder = read_decoder(config, name)
    bias = config.flag("attention_bias")
    attention = attention_shape(config, decoder, qkv_bias=bias, out_bias=bias)
    mlp = MlpShape(
        width=config.integer("intermediate_size"),
        function=config.text("hidden_act"),
        bias=config.flag("mlp_bias"),
    )
    semantics = {
        "norm_eps": config.number("rms_norm_eps"),
        "position": "rope",
        **{key: config.number(key) for key in MULTIPLIERS},
        **rope_of(config),
    }
    return uniform(decoder, Stream(decoder.hidden), attention, mlp).model(config, decoder, semantics)
