"""Falcon: 7B (one key/value head), 40B and 180B (grouped heads, two norms), 1B of the old kind (in sequence)."""

from collections.abc import Mapping

from cost_models.readers.blocks.feed_forward import MlpShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import Decoder
from cost_models.readers.huggingface.config import Config, Default, Scalar, options, sizes
from cost_models.readers.huggingface.dense import (
    SizeKeys,
    agreed,
    inner_width,
    multi_head,
    read_multi_head,
    rope_of,
    uniform,
    with_kv_heads,
)
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **sizes(
        vocab_size=65024,
        hidden_size=4544,
        num_hidden_layers=32,
        num_attention_heads=71,
        num_kv_heads=None,
        num_ln_in_parallel_attn=None,
        ffn_hidden_size=None,
        new_decoder_architecture=False,
        multi_query=True,
        parallel_attn=True,
        bias=False,
        tie_word_embeddings=True,
    ),
    **options(
        alibi=False,
        activation="gelu",
        max_position_embeddings=2048,
        layer_norm_epsilon=1e-5,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        rope_theta=10000.0,
    ),
}
"""FalconConfig of transformers 5.24; the published checkpoints store an untied head as well."""

KEYS = SizeKeys(
    hidden=("hidden_size", "n_embed"),
    layers=("num_hidden_layers", "n_layer"),
    heads=("num_attention_heads", "n_head"),
    positions=("max_position_embeddings",),
)


def read_falcon(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type falcon."""
    config = Config(raw, DEFAULTS, "falcon")
    decoder = read_multi_head(config, name, KEYS)
    decoder = with_kv_heads(decoder, _kv_heads(config, decoder))
    bias, alibi = config.flag("bias"), config.flag("alibi")
    stream = Stream(decoder.hidden, norm="layer", dropout=config.number("hidden_dropout") > 0)
    attention = multi_head(config, decoder, "attention_dropout", qkv_bias=bias, out_bias=bias, rope=not alibi)
    mlp = MlpShape(
        width=inner_width(config, "ffn_hidden_size", decoder.hidden),
        gated=False,
        function=config.text("activation"),
        bias=bias,
    )
    semantics: dict[str, Scalar] = {
        "norm_eps": config.number("layer_norm_epsilon"),
        "position": "alibi" if alibi else "rope",
        **({} if alibi else rope_of(config)),
    }
    return uniform(decoder, stream, attention, mlp, _norms(config)).model(config, decoder, semantics)


def _kv_heads(config: Config, decoder: Decoder) -> int:
    """As stated under the new architecture; else one (multi_query) or as many as heads."""
    if not config.flag("new_decoder_architecture"):
        return 1 if config.flag("multi_query") else decoder.heads
    agreed(config, "num_kv_heads", "n_head_kv")
    stated = config.optional_integer("num_kv_heads", "n_head_kv") or decoder.heads
    if decoder.heads % stated:
        raise config.contradiction(
            "num_kv_heads",
            f"num_attention_heads {decoder.heads} is not a multiple of num_kv_heads {stated}; "
            f"use a divisor of {decoder.heads}",
        )
    return stated


def _norms(config: Config) -> int:
    """Norms before the two branches side by side; 0 where they stand in sequence.

    The new architecture is always parallel; FalconConfig says that it ignores parallel_attn.
    """
    new, parallel = config.flag("new_decoder_architecture"), config.flag("parallel_attn")
    stated = config.optional_integer("num_ln_in_parallel_attn")
    if not parallel and not new:
        return 0
    if not parallel and stated not in (None, 2):
        raise config.contradiction(
            "parallel_attn",
            f"parallel_attn is false and num_ln_in_parallel_attn {stated}, but new_decoder_architecture is always "
            "parallel; set parallel_attn to true",
        )
    if stated is None:
        return 2 if new else 1
    return 2 if stated == 2 else 1
