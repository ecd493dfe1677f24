"""Qwen3-Next and Qwen3.5 text: three layers of gated delta net to one of gated attention, dense or routed."""

from collections.abc import Mapping

from cost_models.operators.base import Operator
from cost_models.readers.blocks.attention import AttentionShape, attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, MoeShape, feed_forward_sublayer
from cost_models.readers.blocks.linear_attention import DeltaNetShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import (
    DECODER_DEFAULTS,
    Decoder,
    Parts,
    assemble,
    attention_shape,
    head_dim,
    read_decoder,
)
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.deepseek import mtp_operators
from cost_models.readers.huggingface.routed import (
    MIXER_TYPES,
    Shapes,
    build_kinds,
    joined,
    read_experts,
    rotated_features,
    semantics,
)
from cost_models.specs.model import ModelSpec

_SHARED: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        num_attention_heads=16,
        num_key_value_heads=2,
        head_dim=256,
        attention_bias=False,
        linear_conv_kernel_dim=4,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        linear_num_key_heads=16,
        linear_num_value_heads=32,
        full_attention_interval=4,
    ),
    **options(max_position_embeddings=32768),
}
_ROUTED: Mapping[str, Default] = sizes(
    hidden_size=2048, moe_intermediate_size=512, shared_expert_intermediate_size=512
)
DEFAULTS: Mapping[str, Mapping[str, Default]] = {
    "qwen3_next": {
        **_SHARED,
        **_ROUTED,
        **sizes(
            vocab_size=151936,
            intermediate_size=5632,
            num_hidden_layers=48,
            num_experts=512,
            decoder_sparse_step=1,
        ),
        **options(num_experts_per_tok=10, norm_topk_prob=True),
    },
    "qwen3_5_moe_text": {
        **_SHARED,
        **_ROUTED,
        **sizes(vocab_size=248320, num_hidden_layers=40, num_experts=256),
        **options(num_experts_per_tok=8),
    },
    "qwen3_5_text": {
        **_SHARED,
        **sizes(
            vocab_size=248320,
            hidden_size=4096,
            intermediate_size=12288,
            num_hidden_layers=32,
            num_key_value_heads=4,
        ),
    },
}
"""Qwen3NextConfig, Qwen3_5MoeTextConfig and Qwen3_5TextConfig of transformers 5.24."""

ROTATED_SHARE = 0.25
"""partial_rotary_factor that the classes take when a config states none."""


def read_qwen3_next(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type qwen3_next."""
    return _read(Config(raw, DEFAULTS["qwen3_next"], "qwen3_next"), name)


def read_qwen3_5_moe_text(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type qwen3_5_moe_text: experts in every layer."""
    return _read(Config(raw, DEFAULTS["qwen3_5_moe_text"], "qwen3_5_moe_text"), name)


def read_qwen3_5_text(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type qwen3_5_text: no experts."""
    return _read(Config(raw, DEFAULTS["qwen3_5_text"], "qwen3_5_text"), name)


def _read(config: Config, name: str) -> ModelSpec:
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    mixers, routed = _mixers(config, decoder.layers), _routed(config, decoder.layers)
    order = joined(routed, mixers)
    moe = _moe(config) if "moe" in routed else None
    mlp = None
    if "dense" in routed:
        mlp = MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_act"))
    attention = _attention(config, decoder)
    shapes: dict[str, Shapes] = {}
    for kind, (word, mixer) in dict(zip(order, zip(routed, mixers, strict=True), strict=True)).items():
        feed_forward = moe if word == "moe" else mlp
        if feed_forward is not None:
            shapes[kind] = (attention if mixer == "full" else _delta_net(config), feed_forward)
    mtp = _prediction(config, stream, decoder, (attention, moe or mlp))
    parts = Parts(
        kinds=build_kinds(stream, shapes),
        order=order,
        semantics=semantics(config, rotated_features=attention.rope_dim, attention_gate="sigmoid"),
        moe=moe,
        mtp_layers=1 if mtp else 0,
        mtp=mtp,
    )
    return assemble(config, decoder, stream, parts)


def _prediction(
    config: Config,
    stream: Stream,
    decoder: Decoder,
    shapes: tuple[AttentionShape, MoeShape | MlpShape | None],
) -> tuple[Operator, ...]:
    """One multi-token-prediction layer with full attention where mtp_num_hidden_layers says so; absent: none."""
    attention, feed_forward = shapes
    if feed_forward is None or not config.listed("mtp_num_hidden_layers"):
        return ()
    if not config.integer("mtp_num_hidden_layers", low=0, high=1):
        return ()
    block = (attention_sublayer(stream, attention), feed_forward_sublayer(stream, feed_forward))
    return mtp_operators(stream, decoder, block)


def _attention(config: Config, decoder: Decoder) -> AttentionShape:
    """The query linear is twice as wide: its second half gates the attention's output feature by feature."""
    bias, size = config.flag("attention_bias"), head_dim(config, decoder)
    return attention_shape(
        config,
        decoder,
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=True,
        gate=size,
        gate_bias=bias,
        rope_dim=rotated_features(config, size, ROTATED_SHARE),
    )


def _delta_net(config: Config) -> DeltaNetShape:
    heads, keys = config.count("linear_num_value_heads"), config.count("linear_num_key_heads")
    if heads % keys:
        raise config.contradiction(
            "linear_num_value_heads",
            f"linear_num_value_heads {heads} is not a multiple of linear_num_key_heads {keys}; use a multiple",
        )
    return DeltaNetShape(
        heads=heads,
        key_heads=keys,
        key_dim=config.integer("linear_key_head_dim"),
        value_dim=config.integer("linear_value_head_dim"),
        kernel_size=config.integer("linear_conv_kernel_dim"),
    )


def _moe(config: Config) -> MoeShape:
    experts, top_k = read_experts(config, ("num_experts", "num_local_experts"))
    return MoeShape(
        experts=experts,
        top_k=top_k,
        width=config.integer("moe_intermediate_size"),
        function=config.text("hidden_act"),
        shared_width=config.integer("shared_expert_intermediate_size"),
        shared_gate=True,
    )


def _mixers(config: Config, layers: int) -> tuple[str, ...]:
    """`linear` or `full`: as listed, else full in the last of every full_attention_interval layers."""
    if config.listed("layer_types"):
        return config.texts("layer_types", layers, MIXER_TYPES)
    every = config.count("full_attention_interval")
    return tuple("linear" if (layer + 1) % every else "full" for layer in range(layers))


def _routed(config: Config, layers: int) -> tuple[str, ...]:
    if config.family != "qwen3_next":
        return ("dense" if config.family == "qwen3_5_text" else "moe",) * layers
    dense = config.integers("mlp_only_layers", low=0) if config.listed("mlp_only_layers") else ()
    step = config.count("decoder_sparse_step")
    return tuple(
        "moe" if layer not in dense and (layer + 1) % step == 0 else "dense" for layer in range(layers)
    )
