"""Llama 4 text: attention inside chunks with rotary positions, every fourth layer over all without them."""

from collections.abc import Mapping

from cost_models.readers.blocks.attention import AttentionShape
from cost_models.readers.blocks.feed_forward import MlpShape, MoeShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import (
    DECODER_DEFAULTS,
    Decoder,
    Parts,
    assemble,
    attention_shape,
    read_decoder,
)
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.routed import Shapes, build_kinds, joined, read_experts, semantics
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=202048,
        hidden_size=5120,
        intermediate_size=8192,
        intermediate_size_mlp=16384,
        num_hidden_layers=48,
        num_attention_heads=40,
        num_key_value_heads=8,
        head_dim=128,
        num_local_experts=16,
        interleave_moe_layer_step=1,
        attention_bias=False,
    ),
    **options(
        num_experts_per_tok=1,
        use_qk_norm=True,
        no_rope_layer_interval=4,
        attention_chunk_size=8192,
        max_position_embeddings=131072,
        rms_norm_eps=1e-5,
        rope_theta=500000.0,
    ),
}
"""Llama4TextConfig of transformers 5.24."""

CHUNKED_TYPES: Mapping[str, str] = {"chunked_attention": "chunked", "full_attention": "full"}
"""Values of layer_types, and the words used here."""


def read_llama4_text(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type llama4_text."""
    config = Config(raw, DEFAULTS, "llama4_text")
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    rotated, routed = _rotated(config, decoder.layers), _routed(config, decoder.layers)
    attended = _attended(config, rotated)
    order = joined(routed, attended)
    moe = _moe(config) if "moe" in routed else None
    mlp = None
    if "dense" in routed:
        width = config.integer("intermediate_size_mlp")
        mlp = MlpShape(width=width, function=config.text("hidden_act"))
    shapes: dict[str, Shapes] = {}
    for kind, (experts, word) in dict(zip(order, zip(routed, attended, strict=True), strict=True)).items():
        feed_forward = moe if experts == "moe" else mlp
        if feed_forward is not None:
            shapes[kind] = (_attention(config, decoder, word), feed_forward)
    found = semantics(config, router_scoring="sigmoid", rope_interleaved=True)
    parts = Parts(kinds=build_kinds(stream, shapes), order=order, semantics=found, moe=moe)
    return assemble(config, decoder, stream, parts)


def _attention(config: Config, decoder: Decoder, word: str) -> AttentionShape:
    """The L2 norm of queries and keys has no weight and stands where they are rotated."""
    bias, rotates = config.flag("attention_bias"), not word.endswith("unrotated")
    return attention_shape(
        config,
        decoder,
        qkv_bias=bias,
        out_bias=bias,
        rope=rotates,
        qk_norm=rotates and config.flag("use_qk_norm"),
        qk_norm_weight=False,
        chunk=config.integer("attention_chunk_size") if word.startswith("chunked") else 0,
    )


def _moe(config: Config) -> MoeShape:
    experts, top_k = read_experts(config, ("num_local_experts", "num_experts"))
    width = config.integer("intermediate_size")
    return MoeShape(
        experts=experts, top_k=top_k, width=width, function=config.text("hidden_act"), shared_width=width
    )


def _routed(config: Config, layers: int) -> tuple[str, ...]:
    """Layers with experts: as listed, else the last of every interleave_moe_layer_step."""
    if config.listed("moe_layers"):
        listed = config.integers("moe_layers", low=0)
        return tuple("moe" if layer in listed else "dense" for layer in range(layers))
    step = config.count("interleave_moe_layer_step")
    return tuple("moe" if (layer + 1) % step == 0 else "dense" for layer in range(layers))


def _rotated(config: Config, layers: int) -> tuple[bool, ...]:
    """Layers with rotary positions: 1 in no_rope_layers, else all but the last of every interval."""
    if config.listed("no_rope_layers") and config.raw("no_rope_layers") != []:
        listed = config.integers("no_rope_layers", low=0)
        if len(listed) != layers:
            raise config.contradiction(
                "no_rope_layers",
                f"no_rope_layers names {len(listed)} layers but the model has {layers}; make the two agree",
            )
        return tuple(each > 0 for each in listed)
    interval = config.count("no_rope_layer_interval")
    return tuple((layer + 1) % interval != 0 for layer in range(layers))


def _attended(config: Config, rotated: tuple[bool, ...]) -> tuple[str, ...]:
    """`chunked` or `full`, and whether queries and keys are left unrotated."""
    if config.listed("layer_types"):
        types = config.texts("layer_types", len(rotated), CHUNKED_TYPES)
    else:
        chunked = config.raw("attention_chunk_size") is not None
        types = tuple("chunked" if rotates and chunked else "full" for rotates in rotated)
    return tuple(
        word if rotates else f"{word}_unrotated" for word, rotates in zip(types, rotated, strict=True)
    )
