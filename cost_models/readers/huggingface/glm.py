"""GLM-4 dense (`glm`) and GLM-4-0414 (`glm4`, four norms): biases on q/k/v, half of each head rotated."""

from collections.abc import Callable, Mapping

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
        vocab_size=151552,
        hidden_size=4096,
        intermediate_size=13696,
        num_hidden_layers=40,
        num_attention_heads=32,
        num_key_value_heads=2,
        head_dim=128,
        attention_bias=True,
    ),
    **options(max_position_embeddings=131072, rms_norm_eps=1.5625e-07, partial_rotary_factor=0.5),
}
"""GlmConfig and Glm4Config of transformers 5.24."""


def reader(family: str) -> Callable[[Mapping[str, object], str], ModelSpec]:
    """The reader of glm or glm4."""
    return lambda raw, name: _read(Config(raw, DEFAULTS, family), name)


def _read(config: Config, name: str) -> ModelSpec:
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden, placement="sandwich" if config.family == "glm4" else "pre")
    rotated = rotated_features(config, head_dim(config, decoder), "partial_rotary_factor")
    attention = attention_shape(config, decoder, qkv_bias=config.flag("attention_bias"), rope_dim=rotated)
    mlp = MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_act"))
    semantics = {
        "norm_eps": config.number("rms_norm_eps"),
        "position": "rope",
        "rope_interleaved": True,
        "rotary_dim": rotated,
        **rope_of(config),
    }
    return uniform(decoder, stream, attention, mlp).model(config, decoder, semantics)


read_glm = reader("glm")
read_glm4 = reader("glm4")
