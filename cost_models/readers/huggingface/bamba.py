"""Bamba, Granite 4 hybrid and Falcon-H1: Mamba 2 with attention on some layers, or beside it on every layer."""

from collections.abc import Mapping

from cost_models.readers.blocks.attention import AttentionShape, attention_branch, attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, MoeShape, feed_forward_sublayer
from cost_models.readers.blocks.mamba import MambaShape, mamba_branch, mamba_sublayer
from cost_models.readers.blocks.stream import Branch, Builder, Stream, chain, sublayer
from cost_models.readers.huggingface.common import (
    DECODER_DEFAULTS,
    Decoder,
    Parts,
    assemble,
    attention_shape,
    check_experts,
    read_decoder,
    rope_semantics,
)
from cost_models.readers.huggingface.config import MAX_LAYERS, Config, Default, Scalar, options, sizes
from cost_models.readers.huggingface.state_space import HYBRID_DEFAULTS, MIXERS, MambaKeys, mamba_shape
from cost_models.specs.model import ModelSpec

_SHARED: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **HYBRID_DEFAULTS,
    **sizes(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32),
}
BAMBA_DEFAULTS: Mapping[str, Default] = {
    **_SHARED,
    **sizes(
        vocab_size=128000,
        intermediate_size=14336,
        num_key_value_heads=8,
        attn_layer_indices=None,
        attention_bias=False,
        mlp_bias=False,
    ),
    **options(max_position_embeddings=262144, rms_norm_eps=1e-5),
}
GRANITE_DEFAULTS: Mapping[str, Default] = {
    **_SHARED,
    **sizes(
        vocab_size=32000,
        intermediate_size=11008,
        num_key_value_heads=None,
        num_local_experts=8,
        shared_intermediate_size=1024,
        attention_bias=False,
    ),
    "layer_types": Default(None),
    **options(
        num_experts_per_tok=2,
        position_embedding_type=None,
        embedding_multiplier=1.0,
        logits_scaling=1.0,
        residual_multiplier=1.0,
        attention_multiplier=1.0,
    ),
}
FALCON_DEFAULTS: Mapping[str, Default] = {
    **_SHARED,
    **sizes(
        vocab_size=128000,
        intermediate_size=14336,
        num_key_value_heads=8,
        mamba_d_ssm=1024,
        mamba_rms_norm=False,
        attention_bias=False,
        mlp_bias=False,
        projectors_bias=False,
    ),
    **options(max_position_embeddings=8192, rms_norm_eps=1e-5, mamba_norm_before_gate=True),
}
"""BambaConfig, GraniteMoeHybridConfig and FalconH1Config of transformers 5.24."""


def read_bamba(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type bamba: a dense feed-forward behind every mixer."""
    config = Config(raw, BAMBA_DEFAULTS, "bamba")
    decoder = read_decoder(config, name)
    listed = config.integers("attn_layer_indices", low=0) if config.raw("attn_layer_indices") else ()
    if listed and max(listed) >= decoder.layers:
        raise config.contradiction(
            "attn_layer_indices",
            f"attn_layer_indices names layer {max(listed)} of {decoder.layers}; use smaller numbers",
        )
    attends = frozenset(listed)
    order = tuple("attention" if layer in attends else "mamba" for layer in range(decoder.layers))
    mlp = MlpShape(
        width=config.integer("intermediate_size"),
        function=config.text("hidden_act"),
        bias=config.flag("mlp_bias"),
    )
    bias = config.flag("attention_bias")
    attention = attention_shape(config, decoder, qkv_bias=bias, out_bias=bias)
    return _alternating(config, decoder, order, mlp, attention)


def read_granitemoehybrid(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type granitemoehybrid: routed experts beside a shared one, or the shared one alone."""
    config = Config(raw, GRANITE_DEFAULTS, "granitemoehybrid")
    decoder = read_decoder(config, name)
    key = "layer_types" if config.states("layer_types") else "layers_block_type"
    if config.listed(key):
        order = config.texts(key, decoder.layers, MIXERS)
    else:
        config.raw("layer_types")
        order = ("mamba",) * decoder.layers
    bias = config.flag("attention_bias")
    rope = config.raw("position_embedding_type") == "rope"
    attention = attention_shape(config, decoder, rope=rope, qkv_bias=bias, out_bias=bias)
    return _alternating(config, decoder, order, _granite_feed(config), attention)


def _granite_feed(config: Config) -> MlpShape | MoeShape:
    experts = config.integer("num_local_experts", "num_experts", low=0, high=MAX_LAYERS)
    function, shared = config.text("hidden_act"), config.integer("shared_intermediate_size")
    if not experts:
        return MlpShape(width=shared, function=function)
    top_k = config.count("num_experts_per_tok")
    check_experts(config, experts, top_k)
    return MoeShape(
        experts=experts,
        top_k=top_k,
        width=config.integer("intermediate_size"),
        function=function,
        shared_width=shared,
    )


def _alternating(
    config: Config,
    decoder: Decoder,
    order: tuple[str, ...],
    feed: MlpShape | MoeShape,
    attention: AttentionShape,
) -> ModelSpec:
    """Mamba 2 or attention, then the feed-forward."""
    stream = Stream(decoder.hidden)
    suffix = "_moe" if isinstance(feed, MoeShape) else ""
    kinds = {}
    for mixer in dict.fromkeys(order):
        if mixer == "mamba":
            first = mamba_sublayer(stream, mamba_shape(config, decoder.hidden, MambaKeys()))
        else:
            first = attention_sublayer(stream, attention)
        kinds[mixer + suffix] = chain(first, feed_forward_sublayer(stream, feed))
    parts = Parts(
        kinds=kinds,
        order=tuple(mixer + suffix for mixer in order),
        semantics=_semantics(config, rope=attention.rope),
        moe=feed if isinstance(feed, MoeShape) else None,
    )
    return assemble(config, decoder, stream, parts)


def read_falcon_h1(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type falcon_h1: both mixers read one norm and are added together, then a feed-forward."""
    config = Config(raw, FALCON_DEFAULTS, "falcon_h1")
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    norm = config.flag("mamba_rms_norm")
    inner = config.optional_integer("mamba_d_ssm") or 0
    mamba = mamba_shape(config, decoder.hidden, MambaKeys(), inner=inner, norm=norm)
    mamba = mamba.model_copy(update={"out_bias": config.flag("projectors_bias")})
    bias = config.flag("attention_bias")
    attention = attention_shape(config, decoder, qkv_bias=bias, out_bias=bias)
    mlp = MlpShape(
        width=config.integer("intermediate_size"),
        function=config.text("hidden_act"),
        bias=config.flag("mlp_bias"),
    )
    block = chain(_both(stream, mamba, attention), feed_forward_sublayer(stream, mlp))
    parts = Parts(
        kinds={"hybrid": block}, order=("hybrid",) * decoder.layers, semantics=_semantics(config, rope=True)
    )
    return assemble(config, decoder, stream, parts)


def _both(stream: Stream, mamba: MambaShape, attention: AttentionShape) -> Builder:
    """A builder for `chain`: norm, Mamba 2 and attention beside each other, residual."""

    def branch(source: str) -> Branch:
        first = mamba_branch(mamba, stream.hidden, source)
        second = attention_branch(attention, stream.hidden, source)
        return Branch((*first.operators, *second.operators), (*first.outputs, *second.outputs))

    return lambda source: sublayer(stream, "attn", source, branch)


def _semantics(config: Config, rope: bool) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {
        "norm": "rms",
        "norm_eps": config.number("rms_norm_eps"),
        "activation": config.text("hidden_act"),
        "position": "rope" if rope else "none",
    }
    if config.family == "granitemoehybrid":
        keys = ("embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier")
        found |= {key: config.number(key) for key in keys}
    if config.family == "falcon_h1":
        found["mamba_norm_before_gate"] = config.flag("mamba_norm_before_gate")
    return found | (rope_semantics(config) if rope else {})
