"""Switch Transformers: T5 with one expert a token in every so many layers of both stacks."""

from collections.abc import Mapping
from dataclasses import replace

from cost_models.operators.base import Operator
from cost_models.operators.embedding import EMBEDDING_TIE
from cost_models.readers.blocks.feed_forward import MlpShape, MoeShape
from cost_models.readers.blocks.layers import layer_kind, runs
from cost_models.readers.blocks.stream import Stream, embedding, head
from cost_models.readers.huggingface.common import refuse_untied
from cost_models.readers.huggingface.config import Config, Default, Scalar, options, sizes
from cost_models.readers.huggingface.t5 import Shapes
from cost_models.specs.model import Layer, ModelSpec, Role, Stack

DEFAULTS: Mapping[str, Default] = {
    **sizes(
        vocab_size=32128,
        d_model=768,
        d_kv=64,
        d_ff=2048,
        num_layers=12,
        num_sparse_encoder_layers=3,
        num_decoder_layers=12,
        num_sparse_decoder_layers=3,
        num_heads=12,
        num_experts=8,
        router_bias=False,
        relative_attention_num_buckets=32,
        tie_word_embeddings=True,
    ),
    **options(
        dense_act_fn="relu",
        dropout_rate=0.1,
        layer_norm_epsilon=1e-6,
        relative_attention_max_distance=128,
        n_positions=512,
        expert_capacity=64,
    ),
}
"""SwitchTransformersConfig of transformers 5.24; null num_decoder_layers means num_layers."""

STACKS = ("encoder", "decoder")
TWO_STACKS = (
    Stack(name="encoder", length="seq_len"),
    Stack(name="decoder", length="decoder_seq_len", reads=("encoder",)),
)


def read_switch_transformers(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type switch_transformers."""
    config = Config(raw, DEFAULTS, "switch_transformers")
    dense, routed = _shapes(config)
    encoders = config.count("num_layers", "num_hidden_layers")
    decoders = config.optional_integer("num_decoder_layers") or encoders
    kinds_of = {
        stack: _kinds_of(config, stack, count)
        for stack, count in zip(STACKS, (encoders, decoders), strict=True)
    }
    refuse_untied(config)
    vocab = config.integer("vocab_size")
    sparse = any("moe" in kind for kinds in kinds_of.values() for kind in kinds)
    moe = routed.mlp if isinstance(routed.mlp, MoeShape) else None
    built = _built(kinds_of, dense, routed) | stack_ends(dense.stream, vocab)
    return ModelSpec(
        name=name,
        family=config.family,
        layers=stack_layers(kinds_of),
        kinds={
            kind: layer_kind(
                kind, operators, dense.stream.hidden, cut_after=kind not in {"head", "encoder_norm"}
            )
            for kind, operators in built.items()
        },
        stacks=TWO_STACKS,
        vocab_size=vocab,
        hidden_size=dense.stream.hidden,
        num_attention_heads=dense.heads,
        num_kv_heads=dense.heads,
        num_experts=moe.experts if moe and sparse else 0,
        num_experts_per_token=1 if sparse else 0,
        max_seq_len=config.integer("n_positions"),
        tied_embeddings=True,
        semantics=_semantics(config),
        assumed=config.assumed,
        reader="huggingface",
    )


def _semantics(config: Config) -> dict[str, Scalar]:
    return {
        "norm": "rms",
        "norm_eps": config.number("layer_norm_epsilon"),
        "activation": config.text("dense_act_fn"),
        "position": "relative",
        "relative_max_distance": config.integer("relative_attention_max_distance"),
        "router_scoring": "softmax",
        "expert_capacity": config.integer("expert_capacity"),
    }


def _shapes(config: Config) -> tuple[Shapes, Shapes]:
    """Layers with a dense feed-forward and layers with experts of its width; neither is gated."""
    width, function = config.integer("d_ff"), config.text("dense_act_fn")
    dense = Shapes(
        stream=Stream(config.integer("d_model", "hidden_size"), dropout=config.number("dropout_rate") > 0),
        heads=config.count("num_heads", "num_attention_heads"),
        head_dim=config.integer("d_kv"),
        buckets=config.integer("relative_attention_num_buckets"),
        every_layer=False,
        mlp=MlpShape(width=width, gated=False, function=function),
    )
    moe = MoeShape(
        experts=config.count("num_experts"),
        top_k=1,
        width=width,
        gated=False,
        function=function,
        router_bias=config.flag("router_bias"),
    )
    return dense, replace(dense, mlp=moe)


def _kinds_of(config: Config, stack: str, count: int) -> tuple[str, ...]:
    """Experts in the second of every so many layers, in all where that is 1. The class leaves the second layer
    of a stack with experts even where num_sparse_*_layers is 0."""
    sparse, step_key = config.integer(f"num_sparse_{stack}_layers", low=0), f"{stack}_sparse_step"
    step = count // sparse if sparse else count
    if config.listed(step_key):
        step = config.integer(step_key, low=0)
    found = []
    for layer in range(count):
        experts = step > 0 and (step == 1 or layer % step == 1)
        found.append(stack + ("_moe" if experts else "") + ("_first" if layer == 0 else ""))
    return tuple(found)


def _built(
    kinds_of: Mapping[str, tuple[str, ...]], dense: Shapes, routed: Shapes
) -> dict[str, tuple[Operator, ...]]:
    built: dict[str, tuple[Operator, ...]] = {}
    for stack, kinds in kinds_of.items():
        for kind in dict.fromkeys(kinds):
            shapes, first = routed if "moe" in kind else dense, kind.endswith("_first")
            built[kind] = shapes.encoder_layer(first) if stack == "encoder" else shapes.decoder_layer(first)
    return built


def stack_ends(stream: Stream, vocab: int) -> dict[str, tuple[Operator, ...]]:
    """The table that both stacks read, the encoder's last norm, and the head."""
    return {
        "embedding": (embedding(vocab, stream.hidden, EMBEDDING_TIE, dropout=stream.dropout),),
        "encoder_norm": (stream.normalise("encoder_norm", "x"),),
        "head": head(stream, vocab, EMBEDDING_TIE),
    }


def stack_layers(kinds_of: Mapping[str, tuple[str, ...]]) -> tuple[Layer, ...]:
    """Encoder, then decoder, each behind its embedding, from the kinds of the blocks of each."""
    return (
        Layer(kind="embedding", role=Role.EMBEDDING, stack="encoder"),
        *runs(kinds_of["encoder"], stack="encoder"),
        Layer(kind="encoder_norm", role=Role.HEAD, stack="encoder"),
        Layer(kind="embedding", role=Role.EMBEDDING, stack="decoder"),
        *runs(kinds_of["decoder"], stack="decoder"),
        Layer(kind="head", role=Role.HEAD, stack="decoder"),
    )
