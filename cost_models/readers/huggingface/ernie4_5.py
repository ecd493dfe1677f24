"""ERNIE 4.5 text, dense and routed: biases everywhere or nowhere, tied table, shared experts."""

from collections.abc import Mapping

from cost_models.operators import CrossEntropy, LmHead
from cost_models.readers.blocks.feed_forward import MlpShape, MoeShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import (
    DECODER_DEFAULTS,
    Parts,
    assemble,
    attention_shape,
    read_decoder,
)
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.routed import Shapes, build_kinds, read_experts, semantics
from cost_models.specs.model import ModelSpec

_SHARED: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(vocab_size=103424, use_bias=False, tie_word_embeddings=True),
    **options(max_position_embeddings=131072, rms_norm_eps=1e-5, rope_theta=500000.0),
}
DENSE_DEFAULTS: Mapping[str, Default] = {
    **_SHARED,
    **sizes(
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=18,
        num_attention_heads=16,
        num_key_value_heads=2,
        head_dim=128,
    ),
}
ROUTED_DEFAULTS: Mapping[str, Default] = {
    **_SHARED,
    **sizes(
        hidden_size=2560,
        intermediate_size=12288,
        num_hidden_layers=28,
        num_attention_heads=20,
        num_key_value_heads=4,
        moe_intermediate_size=1536,
        moe_num_experts=64,
        moe_num_shared_experts=2,
        moe_layer_start_index=1,
        moe_layer_end_index=-1,
        moe_layer_interval=1,
    ),
    **options(moe_k=6),
}
"""Ernie4_5Config and Ernie4_5_MoeConfig of transformers 5.24."""


def read_ernie4_5(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type ernie4_5."""
    config = Config(raw, DENSE_DEFAULTS, "ernie4_5")
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    bias = config.flag("use_bias")
    attention = attention_shape(config, decoder, qkv_bias=bias, out_bias=bias)
    parts = Parts(
        kinds=build_kinds(stream, {"dense": (attention, _mlp(config, bias))}),
        order=("dense",) * decoder.layers,
        semantics=semantics(config),
    )
    return assemble(config, decoder, stream, parts)


def read_ernie4_5_moe(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type ernie4_5_moe; the router's correction bias is a parameter, the experts have no biases."""
    config = Config(raw, ROUTED_DEFAULTS, "ernie4_5_moe")
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    bias, order = config.flag("use_bias"), _order(config, decoder.layers)
    attention = attention_shape(config, decoder, qkv_bias=bias, out_bias=bias)
    shapes: dict[str, Shapes] = {}
    moe = _moe(config, bias) if "moe" in order else None
    if moe:
        shapes["moe"] = (attention, moe)
    if "dense" in order:
        shapes["dense"] = (attention, _mlp(config, bias))
    logits = LmHead(
        name="logits",
        inputs=("final_norm",),
        vocab_size=decoder.vocab,
        width=decoder.hidden,
        tie=decoder.embedding_tie,
        bias=bias,
    )
    loss = CrossEntropy(name="loss", inputs=("logits",), vocab_size=decoder.vocab)
    parts = Parts(
        kinds=build_kinds(stream, shapes),
        order=order,
        semantics=semantics(config, router_scoring="softmax", router_bias_correction=True),
        moe=moe,
        last=(stream.normalise("final_norm", "x"), logits, loss),
    )
    return assemble(config, decoder, stream, parts)


def _mlp(config: Config, bias: bool) -> MlpShape:
    return MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_act"), bias=bias)


def _moe(config: Config, bias: bool) -> MoeShape:
    experts, top_k = read_experts(
        config, ("moe_num_experts", "num_experts", "num_local_experts"), "moe_k", ("num_experts_per_tok",)
    )
    width = config.integer("moe_intermediate_size")
    return MoeShape(
        experts=experts,
        top_k=top_k,
        width=width,
        function=config.text("hidden_act"),
        shared_width=config.integer("moe_num_shared_experts", low=0) * width,
        bias=bias,
        router_bias=True,
    )


def _order(config: Config, layers: int) -> tuple[str, ...]:
    """Experts from moe_layer_start_index to moe_layer_end_index (-1: the last), every moe_layer_interval."""
    first, last = (
        config.integer("moe_layer_start_index", low=0),
        config.integer("moe_layer_end_index", low=-1),
    )
    every = config.count("moe_layer_interval")
    last = layers - 1 if last == -1 else last
    return tuple(
        "moe" if (layer + 1) % every == 0 and first <= layer <= last else "dense" for layer in range(layers)
    )
