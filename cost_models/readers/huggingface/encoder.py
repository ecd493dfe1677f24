"""What encoders trained on masked tokens have in common: sizes, block, embedding layer, transform head."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cost_models.operators import Activation, CrossEntropy, Embedding, LmHead, Norm
from cost_models.operators.base import Operator
from cost_models.readers.blocks.attention import AttentionShape, attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, feed_forward_sublayer
from cost_models.readers.blocks.stream import Stream, chain, replicated
from cost_models.readers.huggingface.common import Decoder
from cost_models.readers.huggingface.config import Config, Default, options, sizes

BERT_DEFAULTS: Mapping[str, Default] = {
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
"""Defaults that the configuration classes of BERT's descendants share (transformers 5.24)."""


@dataclass(frozen=True, slots=True)
class MaskedHead:
    """Transform to `width` (linear, function, norm), then the vocabulary with a bias."""

    vocab: int
    width: int
    function: str
    tie: str
    second_bias: bool = False
    """An untied head of this kind keeps a bias inside the matrix and a second one beside it."""


def encoder_sizes(config: Config, name: str) -> Decoder:
    """Sizes of a BERT-like encoder; heads divide the hidden width."""
    hidden, heads = config.integer("hidden_size"), config.count("num_attention_heads")
    check_heads(config, "hidden_size", hidden, heads)
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


def check_heads(
    config: Config, key: str, hidden: int, heads: int, heads_key: str = "num_attention_heads"
) -> None:
    """Heads must divide the hidden width."""
    if hidden % heads:
        raise config.contradiction(
            key, f"{key} {hidden} is not a multiple of {heads_key} {heads}; change one of them"
        )


def encoder_block(config: Config, stream: Stream, heads: int, causal: bool = False) -> tuple[Operator, ...]:
    """Bidirectional attention and a two-matrix feed-forward, biases everywhere."""
    attention = AttentionShape(
        heads=heads,
        head_dim=stream.hidden // heads,
        qkv_bias=True,
        out_bias=True,
        fp32_softmax=False,
        rope=False,
        causal=causal,
        dropout=config.number("attention_probs_dropout_prob") > 0,
    )
    mlp = MlpShape(
        width=config.integer("intermediate_size"), gated=False, function=config.text("hidden_act"), bias=True
    )
    return chain(attention_sublayer(stream, attention), feed_forward_sublayer(stream, mlp))


def embedding_layer(table: Embedding, hidden: int, always: bool = False) -> tuple[Operator, ...]:
    """Tables, a LayerNorm over them and, where they are not as wide as the stream (or `always`), a linear to it."""
    found: list[Operator] = [
        table,
        Norm(name="embedding_norm", inputs=("embedding",), kind="layer", width=table.width, bias=True),
    ]
    if always or table.width != hidden:
        found.append(replicated("embedding_project", "embedding_norm", table.width, hidden, bias=True))
    return tuple(found)


def masked_head(hidden: int, head: MaskedHead, before: Sequence[Operator] = ()) -> tuple[Operator, ...]:
    """The head over masked tokens, behind the operators of `before`."""
    source = before[-1].name if before else "x"
    width = head.width
    return (
        *before,
        replicated("transform", source, hidden, width, bias=True),
        Activation(
            name="transform_act",
            inputs=("transform",),
            function=head.function,
            width=width,
            unfused_copies=0,
        ),
        Norm(name="transform_norm", inputs=("transform_act",), kind="layer", width=width, bias=True),
        LmHead(
            name="logits",
            inputs=("transform_norm",),
            vocab_size=head.vocab,
            width=width,
            tie=head.tie,
            bias=True,
            second_bias=head.second_bias,
        ),
        CrossEntropy(name="loss", inputs=("logits",), vocab_size=head.vocab),
    )
