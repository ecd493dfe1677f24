"""Blocks of Gemma 4: attention with normalised values, experts beside the feed-forward, an input of each layer."""

from dataclasses import dataclass

from cost_models.operators import Activation, Attention, Embedding, Linear, Norm, Residual, Rope
from cost_models.operators.base import Operator
from cost_models.operators.linear import Part
from cost_models.readers.blocks.feed_forward import MlpShape, MoeShape, mlp_branch, moe_branch
from cost_models.readers.blocks.stream import Branch, Builder, Stream, chain, column, row, sublayer
from cost_models.specs.counts import WIDENING


@dataclass(frozen=True, slots=True)
class Gemma4Attention:
    """Sizes of one kind of attention.

    Without keys of its own a layer reads those of an earlier one, and the values too; without values of its own
    the projected keys are also the values, before either is normalised.
    """

    heads: int
    kv_heads: int
    head_dim: int
    window: int
    causal: bool
    bias: bool
    dropout: bool
    own_keys: bool
    own_values: bool


def block(
    stream: Stream, attention: Gemma4Attention, mlp: MlpShape, moe: MoeShape | None, inputs: int
) -> tuple[Operator, ...]:
    """Attention, feed-forward with experts beside it where there are any, and the layer's own input (width > 0)."""
    builders: list[Builder] = [
        lambda source: sublayer(
            stream, "attn", source, lambda inside: _attention(stream.hidden, attention, inside)
        ),
        lambda source: _feed_forward(stream, mlp, moe, source),
    ]
    if inputs:
        builders.append(lambda source: _own_input(stream, mlp.function, inputs, source))
    return chain(*builders)


def layer_inputs(stream: Stream, vocab: int, layers: int, width: int) -> tuple[Operator, ...]:
    """A second token table of `width` for each layer, and as much projected from the embedded token."""
    return (
        Embedding(name="layer_embedding", vocab_size=vocab, width=layers * width),
        column(WIDENING, "embedding", stream.hidden, layers * width),
        Norm(name=f"{WIDENING}_norm", inputs=(WIDENING,), width=width, groups=layers, sharded=True),
    )


def _attention(hidden: int, shape: Gemma4Attention, source: str) -> Branch:
    heads, keys, dim = shape.heads, shape.kv_heads, shape.head_dim
    parts = [Part(name="q", features=heads * dim)]
    norms = [Norm(name="q_norm", inputs=("q_raw",), width=dim, groups=heads, sharded=True)]
    if shape.own_keys:
        parts.append(Part(name="k", features=keys * dim, max_shards=keys))
        if shape.own_values:
            parts.append(Part(name="v", features=keys * dim, max_shards=keys))
        norms += [_norm("k", keys, dim), _norm("v", keys, dim, weight=False)]
    rotated = heads + keys if shape.own_keys else heads
    found: tuple[Operator, ...] = (
        Linear(name="qkv", inputs=(source,), in_features=hidden, parts=tuple(parts), bias=shape.bias),
        *norms,
        Rope(name="rope", inputs=tuple(each.name for each in norms[:2]), width=rotated * dim),
        Attention(
            name="core_attention",
            inputs=("q", "k", "v"),
            heads=heads,
            kv_heads=keys,
            qk_dim=dim,
            v_dim=dim,
            causal=shape.causal,
            window=shape.window,
            dropout=shape.dropout,
        ),
        row("proj", "core_attention", heads * dim, hidden, shape.bias),
    )
    return Branch(found, ("proj",))


def _norm(part: str, heads: int, dim: int, weight: bool = True) -> Norm:
    """The norm of keys, or of values, which has no weight."""
    return Norm(
        name=f"{part}_norm",
        inputs=("k_raw" if part == "k" else "v_raw",),
        width=dim,
        groups=heads,
        sharded=True,
        max_shards=heads,
        weight=weight,
    )


def _feed_forward(stream: Stream, mlp: MlpShape, moe: MoeShape | None, source: str) -> tuple[Operator, ...]:
    """Norms before and after; with experts each of the two branches has a norm of its own after it as well."""
    dense = mlp_branch(mlp, stream.hidden, "mlp_norm")
    found: list[Operator] = [stream.normalise("mlp_norm", source), *dense.operators]
    output = dense.outputs[0]
    if moe:
        routed = moe_branch(moe, stream.hidden, "experts_norm")
        router, *experts = routed.operators
        found += [
            stream.normalise("dense_post_norm", output),
            stream.normalise("router_norm", source),
            router.model_copy(update={"inputs": ("router_norm",)}),
            stream.normalise("experts_norm", source),
            *experts,
            stream.normalise("experts_post_norm", routed.outputs[0]),
        ]
        output = "branches"
        both = ("dense_post_norm", "experts_post_norm")
        found.append(Residual(name=output, inputs=both, width=stream.hidden))
    found.append(stream.normalise("mlp_post_norm", output))
    found.append(Residual(name="mlp_residual", inputs=(source, "mlp_post_norm"), width=stream.hidden))
    return tuple(found)


def _own_input(stream: Stream, function: str, width: int, source: str) -> tuple[Operator, ...]:
    """The layer's slice of the second table, gated by the stream and added to it."""
    return (
        column("input_gate", source, stream.hidden, width),
        Activation(
            name="input_act", inputs=("input_gate", "layer_input"), function=function, width=width, gated=True
        ),
        row("input_proj", "input_act", width, stream.hidden),
        stream.normalise("input_norm", "input_proj"),
        Residual(name="input_residual", inputs=(source, "input_norm"), width=stream.hidden),
    )
