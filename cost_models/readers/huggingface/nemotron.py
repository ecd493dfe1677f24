"""Nemotron-3, Nemotron-4 and Minitron, dense: LayerNorm around one, squared ReLU, half of each head rotated."""

from collections.abc import Mapping

from cost_models.readers.blocks.feed_forward import MlpShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import (
    DECODER_DEFAULTS,
    attention_shape,
    head_dim,
    read_decoder,
)
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.dense import rope_of, rotated_features, uniform
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=256000,
        hidden_size=6144,
        intermediate_size=24576,
        num_hidden_layers=32,
        num_attention_heads=48,
        num_key_value_heads=None,
        attention_bias=False,
        mlp_bias=False,
    ),
    **options(hidden_act="relu2", max_position_embeddings=4096, norm_eps=1e-5, partial_rotary_factor=0.5),
}
"""NemotronConfig of transformers 5.24; a null num_key_value_heads is read as many as heads."""


def read_nemotron(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type nemotron."""
    config = Config(raw, DEFAULTS, "nemotron")
    decoder = read_decoder(config, name)
    bias = config.flag("attention_bias")
    rotated = rotated_features(
        config, head_dim(config, decoder), "partial_rotary_factor", "rope_percent", "rope_percentage"
    )
    attention = attention_shape(config, decoder, qkv_bias=bias, out_bias=bias, rope_dim=rotated)
    mlp = MlpShape(
        width=config.integer("intermediate_size"),
        gated=False,
        function=config.text("hidden_act"),
        bias=config.flag("mlp_bias"),
    )
    semantics = {
        "norm_eps": config.number("norm_eps"),
        "norm_weight_offset": 1.0,
        "position": "rope",
        "rotary_dim": rotated,
        **rope_of(config),
    }
    stream = Stream(decoder.hidden, norm="layer")
    return uniform(decoder, stream, attention, mlp).model(config, decoder, semantics)
