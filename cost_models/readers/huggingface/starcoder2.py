"""StarCoder 2: grouped-query attention, biases and LayerNorm, plain GELU feed-forward, optional window."""

from collections.abc import Mapping

from cost_models.readers.blocks.feed_forward import MlpShape
from cost_models.readers.blocks.stream import Stream, embedding
from cost_models.readers.huggingface.common import DECODER_DEFAULTS, attention_shape, read_decoder
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.dense import rope_of, uniform, window_of
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=49152,
        hidden_size=3072,
        intermediate_size=12288,
        num_hidden_layers=30,
        num_attention_heads=24,
        num_key_value_heads=2,
        use_bias=True,
        tie_word_embeddings=True,
    ),
    **options(
        hidden_act="gelu_pytorch_tanh",
        max_position_embeddings=4096,
        norm_epsilon=1e-5,
        sliding_window=None,
        residual_dropout=0.0,
        embedding_dropout=0.0,
    ),
}
"""Starcoder2Config of transformers 5.24."""


def read_starcoder2(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type starcoder2."""
    config = Config(raw, DEFAULTS, "starcoder2")
    decoder = read_decoder(config, name)
    bias = config.flag("use_bias")
    stream = Stream(decoder.hidden, norm="layer", dropout=config.number("residual_dropout") > 0)
    attention = attention_shape(config, decoder, qkv_bias=bias, out_bias=bias, window=window_of(config))
    mlp = MlpShape(
        width=config.integer("intermediate_size"), gated=False, function=config.text("hidden_act"), bias=bias
    )
    table = embedding(
        decoder.vocab, decoder.hidden, decoder.embedding_tie, config.number("embedding_dropout") > 0
    )
    semantics = {"norm_eps": config.number("norm_epsilon"), "position": "rope", **rope_of(config)}
    return uniform(decoder, stream, attention, mlp).model(config, decoder, semantics, first=(table,))
