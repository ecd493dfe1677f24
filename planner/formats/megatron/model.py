"""Megatron-LM arguments -> the model that its GPT, BERT, T5 and hybrid builders make (megatron/core/models)."""

from collections.abc import Mapping, Sequence
from typing import Final

from cost_models.errors import BadInput
from cost_models.operators import LmHead, Norm
from cost_models.operators.base import Operator
from cost_models.operators.embedding import EMBEDDING_TIE, IdleWeights
from cost_models.operators.loss import CrossEntropy
from cost_models.readers.blocks.attention import attention_sublayer
from cost_models.readers.blocks.feed_forward import feed_forward_sublayer
from cost_models.readers.blocks.layers import runs
from cost_models.readers.blocks.mamba import mamba_sublayer
from cost_models.readers.blocks.stream import HEAD_TIE, Builder, Stream, chain, head, replicated
from cost_models.readers.huggingface.common import Decoder
from cost_models.readers.huggingface.deepseek import mtp_operators
from cost_models.specs.model import Layer, ModelSpec, Role
from planner.formats.megatron.arguments import Arguments, layer_pattern
from planner.formats.megatron.encoder_decoder import encoder_decoder
from planner.formats.megatron.pieces import BINARY_HEAD_CLASSES, kinds_of, table
from planner.formats.megatron.shapes import (
    attention_shape,
    mamba_shape,
    mlp_shape,
    moe_shape,
    stream_of,
    vocabulary,
)

PROGRAMS: Final = ("gpt", "bert", "t5", "hybrid")
"""What a run trains, by the script that starts it: pretrain_gpt.py and so on."""

HYBRID: Final[Mapping[str, str]] = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def read_model(arguments: Arguments, program: str, name: str) -> ModelSpec:
    """The model of a run; raises BadInput naming the argument."""
    if program not in PROGRAMS:
        raise BadInput(f"program {program!r:.40} is not read; use {', '.join(PROGRAMS)}")
    if program == "t5":
        return encoder_decoder(arguments, name)
    return _decoder(arguments, program, name)


def _decoder(arguments: Arguments, program: str, name: str) -> ModelSpec:
    """One stack of blocks between a table and a head."""
    stream, vocab = stream_of(arguments), vocabulary(arguments, program)
    builders, order = _blocks(arguments, program, stream)
    decoder = Decoder(
        name=name,
        hidden=stream.hidden,
        layers=len(order),
        vocab=vocab,
        heads=arguments.whole("num-attention-heads"),
        kv_heads=attention_heads(arguments),
        max_seq_len=arguments.whole("max-position-embeddings", arguments.whole("seq-length", 1)),
        tied=not arguments.flag("untie-embeddings-and-output-weights"),
    )
    mtp = arguments.layers("mtp-num-layers", 0, low=0)
    table_tie = EMBEDDING_TIE if mtp else decoder.embedding_tie
    head_tie = decoder.embedding_tie or (HEAD_TIE if mtp else "")
    last = (
        _masked_head(arguments, stream, vocab, head_tie)
        if program == "bert"
        else head(stream, vocab, head_tie)
    )
    operators: dict[str, Sequence[Operator]] = {
        "embedding": (table(arguments, stream, vocab, table_tie, program == "bert"),),
        **{kind: chain(*build) for kind, build in builders.items()},
        "head": last,
    }
    if mtp:
        operators["mtp"] = mtp_operators(stream, decoder, builders[order[-1]])
    prediction = (Layer(kind="mtp", role=Role.MTP, count=mtp),) if mtp else ()
    return ModelSpec(
        name=name,
        family=f"megatron-{program}",
        layers=(
            Layer(kind="embedding", role=Role.EMBEDDING),
            *runs(order),
            *prediction,
            Layer(kind="head", role=Role.HEAD),
        ),
        kinds=kinds_of(operators, stream.hidden, ("mtp", "head")),
        vocab_size=vocab,
        hidden_size=stream.hidden,
        num_attention_heads=decoder.heads,
        num_kv_heads=decoder.kv_heads,
        num_experts=arguments.whole("num-experts", 0, low=0),
        num_experts_per_token=moe_shape(arguments).top_k if arguments.has("num-experts") else 0,
        max_seq_len=decoder.max_seq_len,
        tied_embeddings=decoder.tied,
        reader="megatron",
    )


def attention_heads(arguments: Arguments) -> int:
    """Key/value heads."""
    heads = arguments.whole("num-attention-heads")
    return arguments.whole("num-query-groups", heads) if arguments.flag("group-query-attention") else heads


def _blocks(
    arguments: Arguments, program: str, stream: Stream
) -> tuple[dict[str, tuple[Builder, ...]], tuple[str, ...]]:
    """Builders of every kind of block, and the kind of each layer."""
    pattern = arguments.text("hybrid-layer-pattern") or arguments.text("hybrid-override-pattern")
    if pattern:
        return _hybrid(arguments, stream, pattern)
    layers = arguments.layers("num-layers")
    attention = attention_sublayer(stream, attention_shape(arguments, causal=program != "bert"))
    dense = (attention, feed_forward_sublayer(stream, mlp_shape(arguments)))
    if not arguments.has("num-experts"):
        return {"dense": dense}, ("dense",) * layers
    routed = (attention, feed_forward_sublayer(stream, moe_shape(arguments)))
    chosen = layer_pattern(arguments.text("moe-layer-freq", "1"), layers, "moe-layer-freq")
    order = tuple("moe" if routes else "dense" for routes in chosen)
    return {kind: {"dense": dense, "moe": routed}[kind] for kind in dict.fromkeys(order)}, order


def _hybrid(
    arguments: Arguments, stream: Stream, pattern: str
) -> tuple[dict[str, tuple[Builder, ...]], tuple[str, ...]]:
    """One mixer a layer by its letter."""
    letters = pattern.split("/", maxsplit=1)[0].replace("|", "")
    wrong = sorted(set(letters) - set(HYBRID))
    if wrong:
        raise BadInput(f"--hybrid-layer-pattern holds {''.join(wrong)!r:.20}; use only {' '.join(HYBRID)}")
    layers = arguments.layers("num-layers", len(letters))
    if layers != len(letters):
        raise BadInput(
            f"--hybrid-layer-pattern names {len(letters)} layers, --num-layers is {layers}; make them equal"
        )
    builders: dict[str, tuple[Builder, ...]] = {}
    for kind in dict.fromkeys(HYBRID[letter] for letter in letters):
        if kind == "mamba":
            builders[kind] = (mamba_sublayer(stream, mamba_shape(arguments)),)
        elif kind == "attention":
            builders[kind] = (attention_sublayer(stream, attention_shape(arguments)),)
        else:
            shape = mlp_shape(arguments) if kind == "mlp" else moe_shape(arguments)
            builders[kind] = (feed_forward_sublayer(stream, shape),)
    return builders, tuple(HYBRID[letter] for letter in letters)


def _masked_head(arguments: Arguments, stream: Stream, vocab: int, tie: str) -> tuple[Operator, ...]:
    """Final norm, transform with its norm, the vocabulary with a bias (megatron/core/models/bert/bert_model.py).

    The pooler and the binary head work on one position of a sequence: their weights count, their work does not.
    """
    hidden = stream.hidden
    binary = 0 if arguments.flag("bert-no-binary-head") else (hidden + 1) * (hidden + BINARY_HEAD_CLASSES)
    idle = (IdleWeights(name="binary_head", elements=binary),) if binary else ()
    return (
        stream.normalise("final_norm", "x"),
        *idle,
        replicated("transform", "final_norm", hidden, hidden, bias=True),
        Norm(name="transform_norm", inputs=("transform",), kind="layer", width=hidden, bias=True),
        LmHead(name="logits", inputs=("transform_norm",), vocab_size=vocab, width=hidden, tie=tie, bias=True),
        CrossEntropy(name="loss", inputs=("logits",), vocab_size=vocab),
    )
