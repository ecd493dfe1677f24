"""BERT with its masked-language-model head: bidirectional, LayerNorm after, three tables, a head."""

from collections.abc import Mapping

from cost_models.operators import Activation, CrossEntropy, Embedding, LmHead
from cost_models.operators.base import Operator
from cost_models.operators.embedding import EMBEDDING_TIE
from cost_models.readers.blocks.attention import AttentionShape, attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, feed_forward_sublayer
from cost_models.readers.blocks.layers import framed, layer_kind
from cost_models.readers.blocks.stream import Stream, chain, replicated
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
    hidden, heads = config.integer("hidden_size"), config.count("num_attention_heads")
    if hidden % heads:
        raise config.contradiction(
            "hidden_size",
            f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}; change one of them",
        )
    if config.flag("add_cross_attention"):
        raise config.contradiction(
            "add_cross_attention", "add_cross_attention is true, which needs a second model; set it to false"
        )
    vocab, tied = config.integer("vocab_size"), config.flag("tie_word_embeddings")
    tie = EMBEDDING_TIE if tied else ""
    dropout = config.number("hidden_dropout_prob") > 0
    stream = Stream(hidden, norm="layer", placement="post", dropout=dropout)
    positions = config.integer("max_position_embeddings")
    table = Embedding(
        name="embedding",
        vocab_size=vocab,
        width=hidden,
        positions=positions,
        types=config.integer("type_vocab_size"),
        tie=tie,
        dropout=dropout,
    )
    first = (table, stream.normalise("embedding_norm", "embedding"))
    return ModelSpec(
        name=name,
        family="bert",
        layers=framed(("dense",) * config.count("num_hidden_layers")),
        kinds={
            "embedding": layer_kind("embedding", first, hidden),
            "dense": layer_kind("dense", _block(config, stream, heads), hidden),
            "head": layer_kind("head", _head(config, stream, vocab, tie), hidden, cut_after=False),
        },
        vocab_size=vocab,
        hidden_size=hidden,
        num_attention_heads=heads,
        num_kv_heads=heads,
        max_seq_len=positions,
        tied_embeddings=tied,
        semantics={
            "norm": "layer",
            "norm_eps": config.number("layer_norm_eps"),
            "activation": config.text("hidden_act"),
            "position": "learned",
            "causal": config.flag("is_decoder"),
        },
        assumed=config.assumed,
        reader="huggingface",
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
