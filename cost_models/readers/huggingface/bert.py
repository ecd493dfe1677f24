"""BERT with its masked-language-model head: bidirectional, LayerNorm after, three tables, a head."""

from collections.abc import Mapping

from cost_models.operators import Activation, CrossEntropy, Embedding, LmHead
from cost_models.operators.base import Operator
from cost_models.readers.blocks.attention import AttentionShape, attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, feed_forward_sublayer
from cost_models.readers.blocks.stream import Stream, chain, replicated
from cost_models.readers.huggingface.common import Decoder, Parts, assemble, refuse_cross_attention
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **sizes(
        vocab_size=30522,
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=3072,
        max_position_embeddings=512,
        type_vocab_size=2,
        tie_word_embeddings=True,
        add_cross_attention=False,
    ),
    **options(
        hidden_act="gelu",
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
        layer_norm_eps=1e-12,
        is_decoder=False,
    ),
}
"""BertConfig of transformers 5.24."""


def read_bert(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type bert, trained on masked tokens."""
    config = Config(raw, DEFAULTS, "bert")
    refuse_cross_attention(config)
    model = _sizes(config, name)
    dropout = config.number("hidden_dropout_prob") > 0
    stream = Stream(model.hidden, norm="layer", placement="post", dropout=dropout)
    table = Embedding(
        name="embedding",
        vocab_size=model.vocab,
        width=model.hidden,
        positions=model.max_seq_len,
        types=config.integer("type_vocab_size"),
        tie=model.embedding_tie,
        dropout=dropout,
    )
    parts = Parts(
        kinds={"dense": _block(config, stream, model.heads)},
        order=("dense",) * model.layers,
        first=(table, stream.normalise("embedding_norm", "embedding")),
        last=_head(config, stream, model.vocab, model.embedding_tie),
        semantics={
            "norm": "layer",
            "norm_eps": config.number("layer_norm_eps"),
            "activation": config.text("hidden_act"),
            "position": "learned",
            "causal": config.flag("is_decoder"),
        },
    )
    return assemble(config, model, stream, parts)


def _sizes(config: Config, name: str) -> Decoder:
    hidden, heads = config.integer("hidden_size"), config.count("num_attention_heads")
    if hidden % heads:
        raise config.contradiction(
            "hidden_size",
            f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}; change one of them",
        )
    return Decoder(
        name=name,
        hidden=hidden,
        layers=config.count("num_hidden_layers"),
        vocab=config.integer("vocab_size"),
        heads=heads,
        kv_heads=heads,
        max_seq_len=config.integer("max_position_embeddings"),
        tied=config.flag("tie_word_embeddings"),
    )


def _block(config: Config, stream: Stream, heads: int) -> tuple[Operator, ...]:
    attention = AttentionShape(
        heads=heads,
        head_dim=stream.hidden // heads,
        qkv_bias=True,
        out_bias=True,
        rope=False,
        causal=config.flag("is_decoder"),
        dropout=config.number("attention_probs_dropout_prob") > 0,
    )
    mlp = MlpShape(
        width=config.integer("intermediate_size"), gated=False, function=config.text("hidden_act"), bias=True
    )
    return chain(attention_sublayer(stream, attention), feed_forward_sublayer(stream, mlp))


def _head(config: Config, stream: Stream, vocab: int, tie: str) -> tuple[Operator, ...]:
    """Transform (linear, activation, norm), the table again, and a bias of its own."""
    hidden = stream.hidden
    return (
        replicated("transform", "x", hidden, hidden, bias=True),
        Activation(
            name="transform_act",
            inputs=("transform",),
            function=config.text("hidden_act"),
            width=hidden,
            unfused_copies=0,
        ),
        stream.normalise("transform_norm", "transform_act"),
        LmHead(name="logits", inputs=("transform_norm",), vocab_size=vocab, width=hidden, tie=tie, bias=True),
        CrossEntropy(name="loss", inputs=("logits",), vocab_size=vocab),
    )
