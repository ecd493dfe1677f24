"""Decoders whose mixers are not Llama's: DiffLlama, Doge and OLMo Hybrid."""

from collections.abc import Callable, Mapping

from cost_models.operators import Attention, Norm
from cost_models.operators.base import Operator
from cost_models.readers.blocks.attention import AttentionShape, attention_branch
from cost_models.readers.blocks.feed_forward import MlpShape, feed_forward_sublayer
from cost_models.readers.blocks.linear_attention import DeltaNetShape
from cost_models.readers.blocks.stream import Branch, Builder, Stream, chain, replicated, scalars, sublayer
from cost_models.readers.huggingface.common import Decoder, Parts, assemble, attention_shape, read_decoder
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.llama import LLAMA_DEFAULTS
from cost_models.readers.huggingface.routed import MIXER_TYPES, Mixer, mixer_sublayer, semantics
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Mapping[str, Default]] = {
    "diffllama": {
        **LLAMA_DEFAULTS,
        **sizes(hidden_size=2048, intermediate_size=8192, num_hidden_layers=16),
        **options(rms_norm_eps=1e-5),
    },
    "doge": {
        **LLAMA_DEFAULTS,
        **sizes(
            vocab_size=32768,
            hidden_size=1024,
            intermediate_size=2048,
            num_attention_heads=8,
            is_moe=False,
        ),
        **options(sliding_window=None, keep_window_size=2048, hidden_dropout=0.0),
    },
    "olmo_hybrid": {
        **LLAMA_DEFAULTS,
        **sizes(
            vocab_size=100352,
            hidden_size=3840,
            num_attention_heads=30,
            layer_types=None,
            linear_num_key_heads=None,
            linear_num_value_heads=None,
            linear_key_head_dim=None,
            linear_value_head_dim=None,
            linear_conv_kernel_dim=4,
        ),
        **options(max_position_embeddings=65536),
    },
}
"""DiffLlamaConfig, DogeConfig and OlmoHybridConfig of transformers 5.24."""

FULL_EVERY = 4
"""OLMo Hybrid's full attention where layer_types is null: every so many layers, else the last."""

KEY_SHARE = 0.75
"""Its key features of all heads, as a share of the stream, where no head size is stated."""


def read_diffllama(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type diffllama: heads in pairs, whose difference weighs values of twice the size."""
    config = Config(raw, DEFAULTS["diffllama"], "diffllama")
    decoder = read_decoder(config, name)
    bias = config.flag("attention_bias")
    shape = attention_shape(config, decoder, qkv_bias=bias, out_bias=bias)
    if shape.heads % 2 or shape.key_heads % 2:
        raise config.contradiction(
            "num_key_value_heads",
            f"num_attention_heads {shape.heads} and num_key_value_heads {shape.key_heads} must be even, as heads "
            "work in pairs; change them",
        )
    stream = Stream(decoder.hidden)
    attend = _sublayer(stream, lambda source: _differential(shape, stream.hidden, source))
    return _model(config, decoder, stream, attend)


def _differential(shape: AttentionShape, hidden: int, source: str) -> Branch:
    """Attention over doubled values, four vectors of a head's size, a norm without weights (Ye et al. 2024)."""
    found: list[Operator] = []
    for operator in attention_branch(shape, hidden, source).operators:
        if not isinstance(operator, Attention):
            found.append(operator)
            continue
        doubled = operator.model_copy(update={"v_dim": 2 * shape.head_dim, "kv_heads": shape.key_heads})
        norm = Norm(
            name="difference_norm",
            inputs=(operator.name,),
            width=2 * shape.head_dim,
            groups=shape.heads // 2,
            sharded=True,
            weight=False,
        )
        found += [doubled, scalars("lambdas", 4 * shape.head_dim), norm]
    return Branch(tuple(found), ("proj",))


def read_doge(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type doge without experts: q/k norms, keys chosen by a mask that values make, weighted residuals."""
    config = Config(raw, DEFAULTS["doge"], "doge")
    if config.flag("is_moe"):
        raise config.contradiction(
            "is_moe", "is_moe is true; experts of single vectors are not read: write a layers file"
        )
    decoder = read_decoder(config, name)
    bias = config.flag("attention_bias")
    window = config.optional_integer("sliding_window") or config.integer("keep_window_size")
    shape = attention_shape(config, decoder, qkv_bias=bias, out_bias=bias, qk_norm=True, window=window)
    stream = Stream(decoder.hidden, dropout=config.number("hidden_dropout") > 0)

    def branch(source: str) -> Branch:
        inner = attention_branch(shape, stream.hidden, source)
        mask = replicated("mask_steps", "v", shape.key_heads * shape.head_dim, shape.key_heads, bias)
        return Branch((mask, scalars("mask_decay", shape.key_heads), *inner.operators), inner.outputs)

    weights = scalars("residual_weights", 2 * stream.hidden)
    return _model(config, decoder, stream, _sublayer(stream, branch), weights)


def _sublayer(stream: Stream, branch: Callable[[str], Branch]) -> Builder:
    return lambda source: sublayer(stream, "attn", source, branch)


def _model(
    config: Config, decoder: Decoder, stream: Stream, attend: Builder, *further: Operator
) -> ModelSpec:
    mlp = MlpShape(
        width=config.integer("intermediate_size"),
        function=config.text("hidden_act"),
        bias=config.family == "doge" and config.flag("mlp_bias"),
    )
    block = (*further, *chain(attend, feed_forward_sublayer(stream, mlp)))
    parts = Parts(kinds={"dense": block}, order=("dense",) * decoder.layers, semantics=semantics(config))
    return assemble(config, decoder, stream, parts)


def read_olmo_hybrid(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type olmo_hybrid: delta nets behind a norm, attention in front of one."""
    config = Config(raw, DEFAULTS["olmo_hybrid"], "olmo_hybrid")
    decoder = read_decoder(config, name)
    order = _hybrid_order(config, decoder.layers)
    bias = config.flag("attention_bias")
    attention = attention_shape(config, decoder, qkv_bias=bias, out_bias=bias, qk_norm=True)
    mixers: dict[str, Mixer] = {
        "full": attention.model_copy(update={"qk_norm_over": "width"}),
        "linear": _delta_net(config, decoder),
    }
    mlp = MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_act"))
    kinds = {}
    for word in dict.fromkeys(order):
        stream = Stream(decoder.hidden, placement="inner" if word == "full" else "pre")
        kinds[word] = chain(mixer_sublayer(stream, mixers[word]), feed_forward_sublayer(stream, mlp))
    parts = Parts(kinds=kinds, order=order, semantics=semantics(config))
    return assemble(config, decoder, Stream(decoder.hidden), parts)


def _hybrid_order(config: Config, layers: int) -> tuple[str, ...]:
    """As listed; else attention in every fourth layer, or in the last of fewer."""
    if config.listed("layer_types"):
        order = config.texts("layer_types", layers, MIXER_TYPES)
    else:
        order = tuple("linear" if (i + 1) % FULL_EVERY else "full" for i in range(layers))
        if "full" not in order:
            order = (*order[:-1], "full")
        config.note("layer_types", f"every {FULL_EVERY}th full", changes_parameters=True)
    if len(set(order)) != 2:
        raise config.contradiction(
            "layer_types", "layer_types names one kind of layer only; the class needs both kinds"
        )
    return order


def _delta_net(config: Config, decoder: Decoder) -> DeltaNetShape:
    keys = config.optional_integer("linear_num_key_heads") or decoder.heads
    values = config.optional_integer("linear_num_value_heads") or decoder.heads
    key_dim = config.optional_integer("linear_key_head_dim") or int(KEY_SHARE * decoder.hidden / keys)
    if values % keys:
        raise config.contradiction(
            "linear_num_value_heads",
            f"linear_num_value_heads {values} is not a multiple of linear_num_key_heads {keys}; make it one",
        )
    return DeltaNetShape(
        heads=values,
        key_heads=keys,
        key_dim=max(key_dim, 1),
        value_dim=config.optional_integer("linear_value_head_dim") or 2 * max(key_dim, 1),
        kernel_size=config.integer("linear_conv_kernel_dim"),
    )
