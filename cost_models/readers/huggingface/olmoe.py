"""OLMoE: 64 small experts in every layer, q/k norms over all heads."""

from collections.abc import Mapping

from cost_models.readers.blocks.attention import AttentionShape
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
        vocab_size=50304,
        hidden_size=2048,
        intermediate_size=2048,
        num_hidden_layers=16,
        num_attention_heads=16,
        num_key_value_heads=None,
        num_experts=64,
        attention_bias=False,
    ),
    **options(
        num_experts_per_tok=8,
        max_position_embeddings=4096,
        rms_norm_eps=1e-5,
        norm_topk_prob=False,
        clip_qkv=None,
    ),
}
"""OlmoeConfig of transformers 5.24."""


def read_olmoe(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type olmoe."""
    config = Config(raw, DEFAULTS, "olmoe")
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    experts, top_k = read_experts(config, ("num_experts", "num_local_experts"))
    moe = MoeShape(
        experts=experts,
        top_k=top_k,
        width=config.integer("intermediate_size"),
        function=config.text("hidden_act"),
    )
    bias = config.flag("attention_bias")
    attention = attention_shape(config, decoder, qkv_bias=bias, out_bias=bias)
    attention = attention.model_copy(update={"qk_norm": True, "qk_norm_over": "width"})
    _check_norms(config, attention, decoder.hidden)
    found = semantics(config, router_scoring="softmax", router_normalise_top_k=config.flag("norm_topk_prob"))
    parts = Parts(
        kinds=build_kinds(stream, {"moe": (attention, moe)}),
        order=("moe",) * decoder.layers,
        semantics=found,
        moe=moe,
    )
    return assemble(config, decoder, stream, parts)


def _check_norms(config: Config, attention: AttentionShape, hidden: int) -> None:
    """The class makes the query norm as wide as the stream."""
    width = attention.heads * attention.head_dim
    if width != hidden:
        raise config.contradiction(
            "head_dim",
            f"num_attention_heads {attention.heads} x head_dim {attention.head_dim} is {width}, but OLMoE's "
            f"query norm has hidden_size {hidden}; use head_dim {max(1, hidden // attention.heads)}",
        )
