"""What decoders with routed experts have in common: blocks from shapes, where experts stand, semantics."""

from collections.abc import Mapping, Sequence

from cost_models.operators.base import Operator
from cost_models.readers.blocks.attention import AttentionShape, LatentAttentionShape, attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, MoeShape, feed_forward_sublayer
from cost_models.readers.blocks.linear_attention import (
    DeltaAttentionShape,
    DeltaNetShape,
    LightningShape,
    linear_attention_sublayer,
)
from cost_models.readers.blocks.stream import Builder, Stream, chain
from cost_models.readers.huggingface.common import check_experts, rope_semantics
from cost_models.readers.huggingface.config import Config, Scalar

Mixer = AttentionShape | LatentAttentionShape | DeltaNetShape | DeltaAttentionShape | LightningShape
Shapes = tuple[Mixer, MlpShape | MoeShape]
"""The token mixer and the feed-forward of one kind of block."""

MIXER_TYPES: Mapping[str, str] = {"linear_attention": "linear", "full_attention": "full"}
"""Values of layer_types in families with linear attention, and the words used here."""

FEED_FORWARD_TYPES: Mapping[str, str] = {"dense": "dense", "sparse": "moe"}
"""Values of mlp_layer_types, and the words used here."""


def build_kinds(stream: Stream, shapes: Mapping[str, Shapes]) -> dict[str, tuple[Operator, ...]]:
    """Operators of each kind of block: mixer, then feed-forward, each with its norm and residual."""
    return {
        kind: chain(mixer_sublayer(stream, mixer), feed_forward_sublayer(stream, feed_forward))
        for kind, (mixer, feed_forward) in shapes.items()
    }


def mixer_sublayer(stream: Stream, mixer: Mixer) -> Builder:
    """A builder for `chain`: norm, token mixer of any sort, residual."""
    if isinstance(mixer, DeltaNetShape | DeltaAttentionShape | LightningShape):
        return linear_attention_sublayer(stream, mixer)
    return attention_sublayer(stream, mixer)


def read_experts(
    config: Config,
    names: Sequence[str],
    top_k: str = "num_experts_per_tok",
    aliases: Sequence[str] = (),
) -> tuple[int, int]:
    """Number of experts (under any of `names`) and of those a token is routed to (under `top_k` or an alias)."""
    experts, kept = config.count(names[0], *names[1:]), config.count(top_k, *aliases)
    check_experts(config, experts, kept, key=top_k)
    return experts, kept


def dense_then_routed(config: Config, layers: int, key: str = "first_k_dense_replace") -> tuple[str, ...]:
    """`dense` for the first layers, `moe` for the others; mlp_layer_types says it layer by layer."""
    if config.listed("mlp_layer_types"):
        stated = config.texts("mlp_layer_types", layers, FEED_FORWARD_TYPES)
        if config.listed(key) and stated != _first_dense(config, layers, key):
            raise config.contradiction(
                "mlp_layer_types",
                f"mlp_layer_types and {key} disagree about the dense layers; drop one of them",
            )
        return stated
    return _first_dense(config, layers, key)


def _first_dense(config: Config, layers: int, key: str) -> tuple[str, ...]:
    dense = config.integer(key, low=0)
    if dense > layers:
        raise config.contradiction(
            key, f"{key} {dense} is more than num_hidden_layers {layers}; use at most {layers}"
        )
    return ("dense",) * dense + ("moe",) * (layers - dense)


def joined(feed_forward: Sequence[str], attention: Sequence[str]) -> tuple[str, ...]:
    """Kind of every layer: `moe`, or `moe_full` and `moe_sliding` where attention differs between layers."""
    if len(set(attention)) == 1:
        return tuple(feed_forward)
    return tuple(f"{each}_{kind}" for each, kind in zip(feed_forward, attention, strict=True))


def rotated_features(config: Config, head_dim: int, default: float) -> int:
    """Features of a head that are rotated: partial_rotary_factor, at the top or inside rope_parameters."""
    inside = config.flat("rope_parameters").get("rope_parameters.partial_rotary_factor")
    factor = inside if isinstance(inside, float | int) else default
    if config.states("partial_rotary_factor"):
        factor = config.number("partial_rotary_factor")
    elif inside is None:
        config.note("partial_rotary_factor", str(default), changes_parameters=False)
    return max(1, min(head_dim, int(head_dim * factor)))


def semantics(config: Config, **more: Scalar) -> dict[str, Scalar]:
    """What it takes to build a decoder with RMSNorm and rotary positions, and `more`."""
    found: dict[str, Scalar] = {
        "norm": "rms",
        "norm_eps": config.number("rms_norm_eps"),
        "activation": config.text("hidden_act"),
        "position": "rope",
        **rope_semantics(config),
    }
    return found | more
