"""BLOOM: a normalised embedding, ALiBi instead of positions, LayerNorm and biases everywhere, tied table."""

from collections.abc import Mapping

from cost_models.readers.blocks.feed_forward import MlpShape
from cost_models.readers.blocks.stream import Stream, embedding
from cost_models.readers.huggingface.config import Config, Default, Scalar, options, sizes
from cost_models.readers.huggingface.dense import SizeKeys, multi_head, read_multi_head, uniform
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **sizes(vocab_size=250880, hidden_size=64, n_layer=2, n_head=8, tie_word_embeddings=True),
    **options(
        layer_norm_epsilon=1e-5,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        apply_residual_connection_post_layernorm=False,
    ),
}
"""BloomConfig of transformers 5.24, the sizes of a toy; ALiBi sets no longest sequence."""

KEYS = SizeKeys(hidden=("hidden_size", "n_embed", "n_embd"), positions=())
FEED_FORWARD_RATIO = 4


def read_bloom(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type bloom."""
    config = Config(raw, DEFAULTS, "bloom")
    decoder = read_multi_head(config, name, KEYS)
    stream = Stream(decoder.hidden, norm="layer", dropout=config.number("hidden_dropout") > 0)
    attention = multi_head(config, decoder, "attention_dropout", qkv_bias=True, out_bias=True, rope=False)
    mlp = MlpShape(
        width=FEED_FORWARD_RATIO * decoder.hidden, gated=False, function="gelu_pytorch_tanh", bias=True
    )
    first = (
        embedding(decoder.vocab, decoder.hidden, decoder.embedding_tie),
        stream.normalise("embedding_norm", "embedding"),
    )
    semantics: dict[str, Scalar] = {
        "norm_eps": config.number("layer_norm_epsilon"),
        "position": "alibi",
        "residual_after_norm": config.flag("apply_residual_connection_post_layernorm"),
    }
    return uniform(decoder, stream, attention, mlp).model(config, decoder, semantics, first=first)
