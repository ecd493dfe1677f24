"""More decoders with routed experts: Aria's text model, dots.llm1, EXAONE MoE, FlexOlmo and Solar Open."""

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
from cost_models.readers.huggingface.deepseek import check_groups
from cost_models.readers.huggingface.dense import attention_order, every_nth_full
from cost_models.readers.huggingface.routed import (
    Shapes,
    build_kinds,
    dense_then_routed,
    joined,
    read_experts,
    semantics,
)
from cost_models.specs.model import ModelSpec

_SHARED: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        hidden_size=4096,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=None,
        attention_bias=False,
    ),
}
_GROUPS: Mapping[str, Default] = options(
    n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.0
)
DEFAULTS: Mapping[str, Mapping[str, Default]] = {
    "aria_text": {
        **_SHARED,
        **sizes(
            vocab_size=32000,
            intermediate_size=4096,
            mlp_bias=False,
            moe_num_experts=8,
            moe_num_shared_experts=2,
        ),
        **options(moe_topk=2),
    },
    "dots1": {
        **_SHARED,
        **_GROUPS,
        **sizes(
            vocab_size=152064,
            hidden_size=4608,
            intermediate_size=10944,
            moe_intermediate_size=1408,
            num_hidden_layers=62,
            num_key_value_heads=32,
            first_k_dense_replace=0,
        ),
        **options(sliding_window=4096, max_window_layers=62, norm_topk_prob=False),
    },
    "exaone_moe": {
        **_SHARED,
        **_GROUPS,
        **sizes(
            vocab_size=102400,
            intermediate_size=16384,
            num_key_value_heads=32,
            moe_intermediate_size=1024,
            num_experts=64,
            num_shared_experts=1,
            first_k_dense_replace=1,
        ),
        **options(
            num_experts_per_tok=8,
            rms_norm_eps=1e-5,
            sliding_window=4096,
            sliding_window_pattern=4,
            routed_scaling_factor=2.5,
        ),
    },
    "flex_olmo": {
        **_SHARED,
        **sizes(vocab_size=100352, intermediate_size=11008, num_experts=7),
        **options(
            num_experts_per_tok=5, max_position_embeddings=4096, rope_theta=500000.0, norm_topk_prob=False
        ),
    },
    "solar_open": {
        **_SHARED,
        **_GROUPS,
        **sizes(
            vocab_size=196608,
            num_hidden_layers=48,
            num_attention_heads=64,
            num_key_value_heads=8,
            head_dim=128,
            moe_intermediate_size=1280,
            n_routed_experts=128,
            n_shared_experts=1,
        ),
        **options(num_experts_per_tok=8, max_position_embeddings=131072, rms_norm_eps=1e-5),
    },
}
"""AriaTextConfig, Dots1Config, ExaoneMoeConfig, FlexOlmoConfig and SolarOpenConfig of transformers 5.24. Dots1Config
has no default for the numbers of experts, which a config must state."""

COUNTS: Mapping[str, tuple[str, ...]] = {
    "aria_text": ("moe_num_experts", "num_experts"),
    "dots1": ("n_routed_experts", "num_local_experts"),
    "exaone_moe": ("num_experts", "num_local_experts"),
    "flex_olmo": ("num_experts", "num_local_experts"),
    "solar_open": ("n_routed_experts", "num_local_experts"),
}
"""Keys of the number of experts."""

SHARED_KEYS: Mapping[str, str] = {
    "aria_text": "moe_num_shared_experts",
    "dots1": "n_shared_experts",
    "exaone_moe": "num_shared_experts",
    "solar_open": "n_shared_experts",
}
"""Keys of the number of shared experts."""


def read_aria_text(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type aria_text: Llama with experts and shared experts of intermediate_size in every layer."""
    config = Config(raw, DEFAULTS["aria_text"], "aria_text")
    return _model(config, read_decoder(config, name))


def read_dots1(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type dots1: q/k norms, dense layers first, windows from max_window_layers on."""
    config = Config(raw, DEFAULTS["dots1"], "dots1")
    decoder = read_decoder(config, name)
    windowed = config.raw("sliding_window") is not None
    first = config.integer("max_window_layers", low=0) if windowed else decoder.layers
    return _model(config, decoder, attention_order(config, decoder.layers, lambda layer: layer >= first))


def read_exaone_moe(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type exaone_moe: windows but in every n-th layer, dense layers first."""
    config = Config(raw, DEFAULTS["exaone_moe"], "exaone_moe")
    decoder = read_decoder(config, name)
    order = every_nth_full(config, decoder.layers, "sliding_window_pattern")
    return _model(config, decoder, order)


def read_flex_olmo(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type flex_olmo: OLMo 2 with experts."""
    config = Config(raw, DEFAULTS["flex_olmo"], "flex_olmo")
    return _model(config, read_decoder(config, name))


def read_solar_open(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type solar_open: experts and a shared one in every layer."""
    config = Config(raw, DEFAULTS["solar_open"], "solar_open")
    return _model(config, read_decoder(config, name))


def _model(config: Config, decoder: Decoder, attended: tuple[str, ...] = ()) -> ModelSpec:
    """Attention and experts, dense layers where the family has them, windows where `attended` says."""
    words = attended or ("full",) * decoder.layers
    routed = ("moe",) * decoder.layers
    if config.family in ("dots1", "exaone_moe"):
        routed = dense_then_routed(config, decoder.layers)
    order, moe = joined(routed, words), _moe(config)
    shapes: dict[str, Shapes] = {}
    for kind, feed, word in dict.fromkeys(zip(order, routed, words, strict=True)):
        mlp = moe if feed == "moe" else _mlp(config)
        shapes[kind] = (_attention(config, decoder, word), mlp)
    stream = Stream(decoder.hidden, placement="inner" if config.family == "flex_olmo" else "pre")
    softmax = config.family in ("aria_text", "flex_olmo")
    parts = Parts(
        kinds=build_kinds(stream, shapes),
        order=order,
        semantics=semantics(config, router_scoring="softmax" if softmax else "sigmoid"),
        moe=moe,
    )
    return assemble(config, decoder, Stream(decoder.hidden), parts)


def _attention(config: Config, decoder: Decoder, word: str) -> AttentionShape:
    bias = config.family != "exaone_moe" and config.flag("attention_bias")
    shape = attention_shape(
        config,
        decoder,
        qkv_bias=bias,
        out_bias=bias and config.family != "solar_open",
        qk_norm=config.family in ("dots1", "exaone_moe", "flex_olmo"),
        rope=config.family != "exaone_moe" or word == "sliding" or config.raw("sliding_window") is None,
        window=config.integer("sliding_window") if word == "sliding" else 0,
    )
    return shape.model_copy(update={"qk_norm_over": "width" if config.family == "flex_olmo" else "head"})


def _mlp(config: Config) -> MlpShape:
    return MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_act"))


def _moe(config: Config) -> MoeShape:
    top_k = "moe_topk" if config.family == "aria_text" else "num_experts_per_tok"
    experts, kept = read_experts(config, COUNTS[config.family], top_k)
    if "n_group" in DEFAULTS[config.family]:
        check_groups(config, experts)
    own = config.family in ("aria_text", "flex_olmo")
    width = config.integer("intermediate_size" if own else "moe_intermediate_size")
    key = SHARED_KEYS.get(config.family, "")
    return MoeShape(
        experts=experts,
        top_k=kept,
        width=width,
        function=config.text("hidden_act"),
        shared_width=config.integer(key, low=0) * width if key else 0,
        bias=config.family == "aria_text" and config.flag("mlp_bias"),
    )
