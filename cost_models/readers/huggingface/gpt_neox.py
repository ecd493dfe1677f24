"""GPT-NeoX and its Japanese sibling: attention and feed-forward side by side, each behind its LayerNorm."""

from collections.abc import Mapping

from cost_models.readers.blocks.feed_forward import MlpShape
from cost_models.readers.blocks.stream import Stream, embedding
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.dense import (
    Dense,
    SizeKeys,
    multi_head,
    read_multi_head,
    rope_of,
    rotated_features,
    uniform,
)
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **sizes(
        vocab_size=50432,
        hidden_size=6144,
        num_hidden_layers=44,
        num_attention_heads=64,
        intermediate_size=24576,
        tie_word_embeddings=False,
        attention_bias=True,
        use_parallel_residual=True,
    ),
    **options(
        hidden_act="gelu",
        attention_dropout=0.0,
        hidden_dropout=0.0,
        max_position_embeddings=2048,
        layer_norm_eps=1e-5,
        rotary_pct=0.25,
        rotary_emb_base=10000.0,
    ),
}
"""GPTNeoXConfig of transformers 5.24."""

JAPANESE_DEFAULTS: Mapping[str, Default] = {
    **sizes(
        vocab_size=32000,
        hidden_size=2560,
        num_hidden_layers=32,
        num_attention_heads=32,
        intermediate_multiple_size=4,
        tie_word_embeddings=True,
    ),
    **options(
        hidden_act="gelu",
        attention_dropout=0.1,
        hidden_dropout=0.0,
        max_position_embeddings=2048,
        layer_norm_eps=1e-5,
        rotary_pct=1.0,
        rotary_emb_base=10000.0,
    ),
}
"""GPTNeoXJapaneseConfig of transformers 5.24."""

KEYS = SizeKeys(
    hidden=("hidden_size",),
    layers=("num_hidden_layers",),
    heads=("num_attention_heads",),
    positions=("max_position_embeddings",),
)
ROTARY_KEYS = ("rotary_pct", "partial_rotary_factor")


def read_gpt_neox(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type gpt_neox (Pythia too)."""
    config = Config(raw, DEFAULTS, "gpt_neox")
    decoder = read_multi_head(config, name, KEYS)
    dropout = config.number("hidden_dropout") > 0
    stream = Stream(decoder.hidden, norm="layer", dropout=dropout)
    rotated = rotated_features(config, decoder.hidden // decoder.heads, *ROTARY_KEYS)
    bias = config.flag("attention_bias")
    attention = multi_head(
        config, decoder, "attention_dropout", qkv_bias=bias, out_bias=bias, rope_dim=rotated
    )
    mlp = MlpShape(
        width=config.integer("intermediate_size"), gated=False, function=config.text("hidden_act"), bias=True
    )
    norms = 2 if config.flag("use_parallel_residual") else 0
    first = (embedding(decoder.vocab, decoder.hidden, decoder.embedding_tie, dropout),)
    return uniform(decoder, stream, attention, mlp, norms).model(
        config, decoder, _semantics(config, rotated), first=first
    )


def read_gpt_neox_japanese(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type gpt_neox_japanese: no biases but one on the attention output of the last layer."""
    config = Config(raw, JAPANESE_DEFAULTS, "gpt_neox_japanese")
    decoder = read_multi_head(config, name, KEYS)
    stream = Stream(decoder.hidden, norm="layer", dropout=config.number("hidden_dropout") > 0)
    rotated = rotated_features(config, decoder.hidden // decoder.heads, *ROTARY_KEYS)
    plain = multi_head(config, decoder, "attention_dropout", rope_dim=rotated)
    kinds = {"dense": plain, "dense_last": plain.model_copy(update={"out_bias": True})}
    mlp = MlpShape(
        width=decoder.hidden * config.count("intermediate_multiple_size"),
        gated=False,
        function=config.text("hidden_act"),
    )
    order = ("dense",) * (decoder.layers - 1) + ("dense_last",)
    return Dense(stream, kinds, order, mlp).model(config, decoder, _semantics(config, rotated))


def _semantics(config: Config, rotated: int) -> dict[str, str | int | float | bool | None]:
    return {
        "norm_eps": config.number("layer_norm_eps"),
        "position": "rope",
        "rotary_dim": rotated,
        **rope_of(config, "rotary_emb_base"),
    }
