"""Phi-3.5-MoE: Mixtral's experts between LayerNorms, with biases on attention and head."""

from collections.abc import Mapping

from cost_models.operators import CrossEntropy, LmHead
from cost_models.readers.blocks.feed_forward import MoeShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import (
    DECODER_DEFAULTS,
    Parts,
    assemble,
    attention_shape,
    read_decoder,
)
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.routed import build_kinds, read_experts, semantics
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=32064,
        hidden_size=4096,
        intermediate_size=6400,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        num_local_experts=16,
        attention_bias=False,
        lm_head_bias=False,
    ),
    **options(
        num_experts_per_tok=2,
        max_position_embeddings=131072,
        rms_norm_eps=1e-5,
        rope_theta=1e6,
        sliding_window=None,
    ),
}
"""PhimoeConfig of transformers 5.24."""


def read_phimoe(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type phimoe."""
    config = Config(raw, DEFAULTS, "phimoe")
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden, norm="layer")
    experts, top_k = read_experts(config, ("num_local_experts", "num_experts"))
    moe = MoeShape(
        experts=experts,
        top_k=top_k,
        width=config.integer("intermediate_size"),
        function=config.text("hidden_act"),
    )
    bias, window = config.flag("attention_bias"), config.optional_integer("sliding_window") or 0
    attention = attention_shape(config, decoder, qkv_bias=bias, out_bias=bias, window=window)
    logits = LmHead(
        name="logits",
        inputs=("final_norm",),
        vocab_size=decoder.vocab,
        width=decoder.hidden,
        tie=decoder.embedding_tie,
        bias=config.flag("lm_head_bias"),
    )
    loss = CrossEntropy(name="loss", inputs=("logits",), vocab_size=decoder.vocab)
    parts = Parts(
        kinds=build_kinds(stream, {"moe": (attention, moe)}),
        order=("moe",) * decoder.layers,
        semantics=semantics(config, router_scoring="sparsemixer") | {"norm": "layer"},
        moe=moe,
        last=(stream.normalise("final_norm", "x"), logits, loss),
    )
    return assemble(config, decoder, stream, parts)
