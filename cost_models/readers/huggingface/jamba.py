"""Jamba (Lieber et al. 2024): Mamba and attention mixers, dense and routed feed-forwards, each by a period."""

from collections.abc import Mapping

from cost_models.readers.blocks.attention import attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, MoeShape, feed_forward_sublayer
from cost_models.readers.blocks.mamba import selective_sublayer
from cost_models.readers.blocks.stream import Stream, chain
from cost_models.readers.huggingface.common import (
    DECODER_DEFAULTS,
    Decoder,
    Parts,
    assemble,
    attention_shape,
    check_experts,
    read_decoder,
)
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.state_space import MIXERS, selective_shape
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=65536,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        num_experts=16,
        expert_layer_period=2,
        expert_layer_offset=1,
        attn_layer_period=8,
        attn_layer_offset=4,
        mamba_d_state=16,
        mamba_d_conv=4,
        mamba_expand=2,
        mamba_dt_rank="auto",
        mamba_conv_bias=True,
        mamba_proj_bias=False,
    ),
    **options(num_experts_per_tok=2, max_position_embeddings=262144),
}
"""JambaConfig of transformers 5.24."""


def read_jamba(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type jamba."""
    config = Config(raw, DEFAULTS, "jamba")
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    moe = _moe(config)
    order = _order(config, decoder, moe)
    mlp = MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_act"))
    kinds = {}
    for kind in dict.fromkeys(order):
        mixer, _, feed = kind.partition("_")
        if mixer == "mamba":
            first = selective_sublayer(stream, selective_shape(config, decoder.hidden, norms=True))
        else:
            first = attention_sublayer(stream, attention_shape(config, decoder, rope=False))
        second = feed_forward_sublayer(stream, moe if moe and feed == "moe" else mlp)
        kinds[kind] = chain(first, second)
    parts = Parts(
        kinds=kinds,
        order=order,
        semantics={
            "norm": "rms",
            "norm_eps": config.number("rms_norm_eps"),
            "activation": config.text("hidden_act"),
            "position": "none",
            "router_scoring": "softmax",
            "router_normalise_top_k": False,
        },
        moe=moe,
    )
    return assemble(config, decoder, stream, parts)


def _moe(config: Config) -> MoeShape | None:
    experts = config.count("num_experts", "num_local_experts")
    if experts == 1:
        return None
    moe = MoeShape(
        experts=experts,
        top_k=config.count("num_experts_per_tok"),
        width=config.integer("intermediate_size"),
        function=config.text("hidden_act"),
    )
    check_experts(config, moe.experts, moe.top_k)
    return moe


def _order(config: Config, decoder: Decoder, moe: MoeShape | None) -> tuple[str, ...]:
    attends = _periodic(config, "attn", decoder.layers)
    for key in ("layers_block_type", "layer_types"):
        if config.listed(key):
            stated = tuple(each == "attention" for each in config.texts(key, decoder.layers, MIXERS))
            if stated != attends:
                raise config.contradiction(
                    key,
                    f"{key} names {sum(stated)} attention layers in another order than attn_layer_period "
                    f"and attn_layer_offset ({sum(attends)} layers); make the two agree",
                )
    routes = _periodic(config, "expert", decoder.layers) if moe else (False,) * decoder.layers
    return tuple(
        ("attention" if attend else "mamba") + ("_moe" if route else "_dense")
        for attend, route in zip(attends, routes, strict=True)
    )


def _periodic(config: Config, what: str, layers: int) -> tuple[bool, ...]:
    period = config.count(f"{what}_layer_period")
    offset = config.integer(f"{what}_layer_offset", low=0)
    if offset >= period:
        raise config.contradiction(
            f"{what}_layer_offset",
            f"{what}_layer_offset {offset} is not below {what}_layer_period {period}; use a smaller offset",
        )
    return tuple(layer % period == offset for layer in range(layers))
