"""Ministral and Ministral 3, text: Mistral's block with heads of a stated size and optional windows."""

from collections.abc import Mapping

from cost_models.readers.blocks.feed_forward import MlpShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import DECODER_DEFAULTS, attention_shape, read_decoder
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.dense import attention_order, mixed, rope_of, uniform, window_of
from cost_models.specs.model import ModelSpec

_SHARED: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(hidden_size=4096, intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8),
}
MINISTRAL_DEFAULTS: Mapping[str, Default] = {
    **_SHARED,
    **sizes(vocab_size=32000, num_hidden_layers=32),
    **options(max_position_embeddings=131072, sliding_window=4096),
}
"""MinistralConfig of transformers 5.24."""

MINISTRAL3_DEFAULTS: Mapping[str, Default] = {
    **_SHARED,
    **sizes(vocab_size=131072, num_hidden_layers=34, head_dim=128),
    **options(max_position_embeddings=262144, rms_norm_eps=1e-5, sliding_window=None, rope_theta=1e6),
}
"""Ministral3Config of transformers 5.24."""


def read_ministral(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type ministral: windows as listed in layer_types, else on every layer unless null."""
    config = Config(raw, MINISTRAL_DEFAULTS, "ministral")
    decoder = read_decoder(config, name)
    full = attention_shape(config, decoder)
    order = attention_order(config, decoder.layers, lambda layer: window_of(config) > 0)
    window = config.integer("sliding_window") if "sliding" in order else 0
    sliding = full.model_copy(update={"window": window})
    semantics = {"norm_eps": config.number("rms_norm_eps"), "position": "rope", **rope_of(config)}
    return mixed(Stream(decoder.hidden), full, sliding, order, _mlp(config)).model(config, decoder, semantics)


def read_ministral3(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type ministral3."""
    config = Config(raw, MINISTRAL3_DEFAULTS, "ministral3")
    decoder = read_decoder(config, name)
    attention = attention_shape(config, decoder, window=window_of(config))
    semantics = {"norm_eps": config.number("rms_norm_eps"), "position": "rope", **rope_of(config)}
    return uniform(decoder, Stream(decoder.hidden), attention, _mlp(config)).model(config, decoder, semantics)


def _mlp(config: Config) -> MlpShape:
    return MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_act"))
