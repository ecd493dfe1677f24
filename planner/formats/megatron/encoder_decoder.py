"""T5 as Megatron-LM builds it (megatron/core/models/T5): pre-norm blocks with biases, one tied table, a biased head."""

from cost_models.operators import LmHead
from cost_models.operators.base import Operator
from cost_models.operators.embedding import EMBEDDING_TIE
from cost_models.operators.loss import CrossEntropy
from cost_models.readers.blocks.attention import attention_sublayer
from cost_models.readers.blocks.cross_attention import cross_attention_sublayer
from cost_models.readers.blocks.feed_forward import feed_forward_sublayer
from cost_models.readers.blocks.layers import runs
from cost_models.readers.blocks.stream import Stream, chain
from cost_models.specs.model import Layer, LayerKind, ModelSpec, Role, Stack
from planner.formats.megatron.arguments import Arguments
from planner.formats.megatron.pieces import kinds_of, table
from planner.formats.megatron.shapes import attention_shape, mlp_shape, stream_of, vocabulary


def encoder_decoder(arguments: Arguments, name: str) -> ModelSpec:
    """The model of pretrain_t5.py."""
    stream, vocab = stream_of(arguments), vocabulary(arguments, "t5")
    encoders = arguments.layers("encoder-num-layers", arguments.layers("num-layers", 0, low=0) or None)
    decoders = arguments.layers("decoder-num-layers", encoders)
    order = ("decoder_first", *("decoder",) * (decoders - 1))
    heads = arguments.whole("num-attention-heads")
    return ModelSpec(
        name=name,
        family="megatron-t5",
        layers=(
            Layer(kind="encoder_embedding", role=Role.EMBEDDING, stack="encoder"),
            *runs(("encoder",) * encoders, stack="encoder"),
            Layer(kind="encoder_norm", role=Role.HEAD, stack="encoder"),
            Layer(kind="decoder_embedding", role=Role.EMBEDDING, stack="decoder"),
            *runs(order, stack="decoder"),
            Layer(kind="head", role=Role.HEAD, stack="decoder"),
        ),
        kinds=_kinds(arguments, stream, vocab, decoders),
        stacks=(
            Stack(name="encoder", length="seq_len"),
            Stack(name="decoder", length="decoder_seq_len", reads=("encoder",)),
        ),
        vocab_size=vocab,
        hidden_size=stream.hidden,
        num_attention_heads=heads,
        num_kv_heads=heads,
        max_seq_len=arguments.whole("max-position-embeddings"),
        tied_embeddings=True,
        reader="megatron",
    )


def _kinds(arguments: Arguments, stream: Stream, vocab: int, decoders: int) -> dict[str, LayerKind]:
    """Kinds of both stacks; the decoder's first layer keeps the encoder's output for all."""
    attention = attention_shape(arguments, causal=False)
    looking_back = attention_sublayer(stream, attention.model_copy(update={"causal": True}))
    feed = feed_forward_sublayer(stream, mlp_shape(arguments))
    words = table(arguments, stream, vocab, EMBEDDING_TIE, types=False)
    crossing = {
        kind: chain(looking_back, cross_attention_sublayer(stream, attention, kind == "decoder_first"), feed)
        for kind in ("decoder_first", "decoder")[:decoders]
    }
    operators: dict[str, tuple[Operator, ...]] = {
        "encoder_embedding": (words,),
        "encoder": chain(attention_sublayer(stream, attention), feed),
        "encoder_norm": (stream.normalise("encoder_norm", "x"),),
        "decoder_embedding": (words.model_copy(update={"positions": 0}),),
        **crossing,
        "head": _head(stream, vocab),
    }
    return kinds_of(operators, stream.hidden, ("encoder_norm", "head"))


def _head(stream: Stream, vocab: int) -> tuple[Operator, ...]:
    matrix = LmHead(
        name="logits",
        inputs=("final_norm",),
        vocab_size=vocab,
        width=stream.hidden,
        tie=EMBEDDING_TIE,
        bias=True,
    )
    loss = CrossEntropy(name="loss", inputs=("logits",), vocab_size=vocab)
    return (stream.normalise("final_norm", "x"), matrix, loss)
