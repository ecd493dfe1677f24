"""OPT, XGLM and BioGPT: learned or sinusoidal positions, LayerNorm, biases everywhere, tied table."""

from collections.abc import Mapping

from cost_models.operators import CrossEntropy, Embedding, LmHead
from cost_models.operators.base import Operator
from cost_models.readers.blocks.feed_forward import MlpShape
from cost_models.readers.blocks.stream import Stream, embedding, replicated
from cost_models.readers.huggingface.common import Decoder, refuse_cross_attention
from cost_models.readers.huggingface.config import Config, Default, Scalar, options, sizes
from cost_models.readers.huggingface.dense import SizeKeys, multi_head, read_multi_head, uniform
from cost_models.specs.model import ModelSpec

OPT_DEFAULTS: Mapping[str, Default] = {
    **sizes(
        vocab_size=50272,
        hidden_size=768,
        num_hidden_layers=12,
        ffn_dim=3072,
        num_attention_heads=12,
        max_position_embeddings=2048,
        word_embed_proj_dim=None,
        do_layer_norm_before=True,
        _remove_final_layer_norm=False,
        enable_bias=True,
        layer_norm_elementwise_affine=True,
        tie_word_embeddings=True,
    ),
    **options(activation_function="relu", dropout=0.1, attention_dropout=0.0),
}
"""OPTConfig of transformers 5.24; a null word_embed_proj_dim means hidden_size."""

XGLM_DEFAULTS: Mapping[str, Default] = {
    **sizes(
        vocab_size=256008,
        d_model=1024,
        ffn_dim=4096,
        num_layers=24,
        attention_heads=16,
        tie_word_embeddings=True,
        add_cross_attention=False,
    ),
    **options(
        max_position_embeddings=2048,
        activation_function="gelu",
        dropout=0.1,
        attention_dropout=0.1,
        scale_embedding=True,
    ),
}
"""XGLMConfig of transformers 5.24."""

BIOGPT_DEFAULTS: Mapping[str, Default] = {
    **sizes(
        vocab_size=42384,
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        intermediate_size=4096,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
    ),
    **options(
        hidden_act="gelu",
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        layer_norm_eps=1e-12,
        scale_embedding=True,
    ),
}
"""BioGptConfig of transformers 5.24."""

PLAIN_KEYS = SizeKeys(
    hidden=("hidden_size",),
    layers=("num_hidden_layers",),
    heads=("num_attention_heads",),
    positions=("max_position_embeddings",),
)
XGLM_KEYS = SizeKeys(
    hidden=("d_model", "hidden_size"),
    layers=("num_layers", "num_hidden_layers"),
    heads=("attention_heads", "num_attention_heads"),
    positions=("max_position_embeddings",),
)
POSITION_OFFSET = 2
"""Rows of the position table before the first position (fairseq's padding rows)."""


def read_opt(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type opt."""
    config = Config(raw, OPT_DEFAULTS, "opt")
    decoder = read_multi_head(config, name, PLAIN_KEYS)
    dropout, affine = config.number("dropout") > 0, config.flag("layer_norm_elementwise_affine")
    before = config.flag("do_layer_norm_before")
    stream = Stream(
        decoder.hidden,
        norm="layer",
        placement="pre" if before else "post",
        dropout=dropout,
        norm_weight=affine,
        norm_bias=affine,
    )
    bias = config.flag("enable_bias")
    attention = multi_head(config, decoder, "attention_dropout", qkv_bias=bias, out_bias=bias, rope=False)
    mlp = MlpShape(
        width=config.integer("ffn_dim"),
        gated=False,
        function=config.text("activation_function"),
        bias=bias,
    )
    narrow = config.optional_integer("word_embed_proj_dim")
    if narrow is None and not config.states("word_embed_proj_dim"):
        config.note("word_embed_proj_dim", str(decoder.hidden), changes_parameters=True)
    width = narrow or decoder.hidden
    final_norm = before and not config.flag("_remove_final_layer_norm")
    return uniform(decoder, stream, attention, mlp).model(
        config,
        decoder,
        {"position": "learned", "position_offset": POSITION_OFFSET},
        first=_opt_first(decoder, width, dropout),
        last=_opt_last(decoder, stream, width, final_norm),
    )


def _opt_first(decoder: Decoder, width: int, dropout: bool) -> tuple[Operator, ...]:
    """Tokens and positions; a narrower token table is widened by a linear."""
    table = Embedding(
        name="embedding",
        vocab_size=decoder.vocab,
        width=width,
        positions=decoder.max_seq_len + POSITION_OFFSET,
        position_width=decoder.hidden,
        tie=decoder.embedding_tie,
        dropout=dropout,
    )
    if width == decoder.hidden:
        return (table,)
    return (table, replicated("stream_in", "embedding", width, decoder.hidden))


def _opt_last(decoder: Decoder, stream: Stream, width: int, final_norm: bool) -> tuple[Operator, ...]:
    """Final norm where there is one, the way back to the table's width, logits and loss."""
    found: list[Operator] = [stream.normalise("final_norm", "x")] if final_norm else []
    if width != decoder.hidden:
        found.append(replicated("stream_out", found[-1].name if found else "x", decoder.hidden, width))
    return (
        *found,
        LmHead(
            name="logits",
            inputs=(found[-1].name if found else "x",),
            vocab_size=decoder.vocab,
            width=width,
            tie=decoder.embedding_tie,
        ),
        CrossEntropy(name="loss", inputs=("logits",), vocab_size=decoder.vocab),
    )


def read_xglm(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type xglm: OPT's block with sinusoidal positions, which are no parameters."""
    config = Config(raw, XGLM_DEFAULTS, "xglm")
    refuse_cross_attention(config)
    decoder = read_multi_head(config, name, XGLM_KEYS)
    dropout = config.number("dropout") > 0
    stream = Stream(decoder.hidden, norm="layer", dropout=dropout)
    attention = multi_head(config, decoder, "attention_dropout", qkv_bias=True, out_bias=True, rope=False)
    mlp = MlpShape(
        width=config.integer("ffn_dim"),
        gated=False,
        function=config.text("activation_function"),
        bias=True,
    )
    table = embedding(decoder.vocab, decoder.hidden, decoder.embedding_tie, dropout)
    semantics: dict[str, Scalar] = {
        "position": "sinusoidal",
        "scale_embedding": config.flag("scale_embedding"),
    }
    return uniform(decoder, stream, attention, mlp).model(config, decoder, semantics, first=(table,))


def read_biogpt(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type biogpt: OPT's block and positions."""
    config = Config(raw, BIOGPT_DEFAULTS, "biogpt")
    decoder = read_multi_head(config, name, PLAIN_KEYS)
    dropout = config.number("hidden_dropout_prob") > 0
    stream = Stream(decoder.hidden, norm="layer", dropout=dropout)
    attention = multi_head(
        config, decoder, "attention_probs_dropout_prob", qkv_bias=True, out_bias=True, rope=False
    )
    mlp = MlpShape(
        width=config.integer("intermediate_size"), gated=False, function=config.text("hidden_act"), bias=True
    )
    semantics: dict[str, Scalar] = {
        "norm_eps": config.number("layer_norm_eps"),
        "position": "learned",
        "position_offset": POSITION_OFFSET,
        "scale_embedding": config.flag("scale_embedding"),
    }
    first = _opt_first(decoder, decoder.hidden, dropout)
    return uniform(decoder, stream, attention, mlp).model(config, decoder, semantics, first=first)
