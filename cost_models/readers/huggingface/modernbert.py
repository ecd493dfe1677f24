"""ModernBERT (Warner et al. 2024): windows two layers of three, gated feed-forward, rotary, norms before."""

from collections.abc import Mapping

from cost_models.operators import CrossEntropy, LmHead, Residual
from cost_models.operators.base import Operator
from cost_models.readers.blocks.attention import AttentionShape, attention_branch, attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, activation, feed_forward_sublayer
from cost_models.readers.blocks.stream import Builder, Stream, chain, embedding, replicated
from cost_models.readers.huggingface.common import ATTENTION_TYPES, Decoder, Parts, assemble
from cost_models.readers.huggingface.config import Config, Default, Scalar, options, sizes
from cost_models.readers.huggingface.encoder import encoder_sizes
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **sizes(
        vocab_size=50368,
        hidden_size=768,
        intermediate_size=1152,
        num_hidden_layers=22,
        num_attention_heads=12,
        norm_bias=False,
        attention_bias=False,
        mlp_bias=False,
        classifier_bias=False,
        decoder_bias=True,
        tie_word_embeddings=True,
    ),
    **options(
        hidden_activation="gelu",
        classifier_activation="gelu",
        max_position_embeddings=8192,
        norm_eps=1e-5,
        attention_dropout=0.0,
        mlp_dropout=0.0,
        embedding_dropout=0.0,
        local_attention=128,
        global_attn_every_n_layers=3,
    ),
}
"""ModernBertConfig of transformers 5.24."""

THETA: Mapping[str, float] = {"global_rope_theta": 160_000.0, "local_rope_theta": 10_000.0}
"""Rotary bases of full and window layers in the same class."""


def read_modernbert(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type modernbert, trained on masked tokens."""
    return _read(Config(raw, {**DEFAULTS, **options(**THETA)}, "modernbert"), name)


def read_modernbert_decoder(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type modernbert-decoder: the same blocks, causal."""
    return _read(Config(raw, {**DEFAULTS, **options(**THETA)}, "modernbert-decoder"), name)


def _read(config: Config, name: str) -> ModelSpec:
    model = encoder_sizes(config, name)
    stream = Stream(
        model.hidden,
        norm="layer",
        dropout=config.number("mlp_dropout") > 0,
        norm_bias=config.flag("norm_bias"),
    )
    order = _order(config, model)
    mlp = MlpShape(
        width=config.integer("intermediate_size"),
        function=config.text("hidden_activation"),
        bias=config.flag("mlp_bias"),
    )
    kinds = {
        kind: chain(_attention(config, stream, model, kind), feed_forward_sublayer(stream, mlp))
        for kind in dict.fromkeys(order)
    }
    dropout = config.number("embedding_dropout") > 0
    table = embedding(model.vocab, model.hidden, model.embedding_tie, dropout=dropout)
    parts = Parts(
        kinds=kinds,
        order=order,
        first=(table, stream.normalise("embedding_norm", "embedding")),
        last=_head(config, stream, model),
        semantics=_semantics(config),
    )
    return assemble(config, model, stream, parts)


def _order(config: Config, model: Decoder) -> tuple[str, ...]:
    """Full attention every third layer, or as listed; the first layer has no norm before its attention."""
    if config.listed("layer_types"):
        order = list(config.texts("layer_types", model.layers, ATTENTION_TYPES))
    else:
        every = config.count("global_attn_every_n_layers")
        order = ["sliding" if layer % every else "full" for layer in range(model.layers)]
    return (f"first_{order[0]}", *order[1:])


def _attention(config: Config, stream: Stream, model: Decoder, kind: str) -> Builder:
    """Bidirectional attention; a window is as wide as stated, half of it to each side."""
    bias = config.flag("attention_bias")
    shape = AttentionShape(
        heads=model.heads,
        head_dim=model.hidden // model.heads,
        qkv_bias=bias,
        out_bias=bias,
        causal=config.family == "modernbert-decoder",
        window=config.integer("local_attention", low=2) // 2 if kind.endswith("sliding") else 0,
        dropout=config.number("attention_dropout") > 0,
    )
    if not kind.startswith("first_"):
        return attention_sublayer(stream, shape)

    def bare(source: str) -> tuple[Operator, ...]:
        branch = attention_branch(shape, stream.hidden, source)
        residual = Residual(
            name="attn_residual",
            inputs=(source, *branch.outputs),
            width=stream.hidden,
            dropout=stream.dropout,
        )
        return (*branch.operators, residual)

    return bare


def _head(config: Config, stream: Stream, model: Decoder) -> tuple[Operator, ...]:
    hidden = model.hidden
    shape = MlpShape(width=hidden, gated=False, function=config.text("classifier_activation"))
    return (
        stream.normalise("final_norm", "x"),
        replicated("transform", "final_norm", hidden, hidden, bias=config.flag("classifier_bias")),
        activation("transform_act", "transform", shape),
        stream.normalise("transform_norm", "transform_act"),
        LmHead(
            name="logits",
            inputs=("transform_norm",),
            vocab_size=model.vocab,
            width=hidden,
            tie=model.embedding_tie,
            bias=config.flag("decoder_bias"),
        ),
        CrossEntropy(name="loss", inputs=("logits",), vocab_size=model.vocab),
    )


def _semantics(config: Config) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {
        "norm": "layer",
        "norm_eps": config.number("norm_eps"),
        "activation": config.text("hidden_activation"),
        "position": "rope",
        "causal": config.family == "modernbert-decoder",
    }
    rotary = config.flat("rope_parameters")
    return found | (rotary or {key: config.number(key) for key in THETA})
