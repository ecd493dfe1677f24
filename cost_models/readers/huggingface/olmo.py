"""OLMo 1 to 3: norms without weights (1); norms after each branch and over all heads of q and k (2); windows (3)."""

from collections.abc import Mapping

from cost_models.readers.blocks.feed_forward import MlpShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import DECODER_DEFAULTS, attention_shape, read_decoder
from cost_models.readers.huggingface.config import Config, Default, Scalar, options, sizes
from cost_models.readers.huggingface.dense import attention_order, mixed, rope_of, uniform
from cost_models.specs.model import ModelSpec

_SHARED: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=50304,
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=None,
        attention_bias=False,
    ),
    **options(rms_norm_eps=1e-5),
}
DEFAULTS: Mapping[str, Mapping[str, Default]] = {
    "olmo": {**_SHARED, **options(clip_qkv=None)},
    "olmo2": _SHARED,
    "olmo3": {**_SHARED, **options(sliding_window=4096, rope_theta=500000.0)},
}
"""OlmoConfig, Olmo2Config and Olmo3Config of transformers 5.24."""

FULL_EVERY = 4
"""OLMo 3 without layer_types: every fourth layer sees everything (Olmo3Config)."""


def read_olmo(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type olmo: its LayerNorms have neither weights nor biases."""
    config = Config(raw, DEFAULTS["olmo"], "olmo")
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden, norm="layer", norm_weight=False, norm_bias=False)
    bias = config.flag("attention_bias")
    attention = attention_shape(config, decoder, qkv_bias=bias, out_bias=bias)
    semantics: dict[str, Scalar] = {"norm_eps": 1e-5, "position": "rope", **rope_of(config)}
    if config.raw("clip_qkv") is not None:
        semantics["clip_qkv"] = config.number("clip_qkv")
    return uniform(decoder, stream, attention, _mlp(config)).model(config, decoder, semantics)


def read_olmo2(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type olmo2."""
    return _read_inner(Config(raw, DEFAULTS["olmo2"], "olmo2"), name)


def read_olmo3(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type olmo3."""
    return _read_inner(Config(raw, DEFAULTS["olmo3"], "olmo3"), name)


def _read_inner(config: Config, name: str) -> ModelSpec:
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden, placement="inner")
    bias = config.flag("attention_bias")
    full = attention_shape(config, decoder, qkv_bias=bias, out_bias=bias, qk_norm=True)
    full = full.model_copy(update={"qk_norm_over": "width"})
    semantics: dict[str, Scalar] = {
        "norm_eps": config.number("rms_norm_eps"),
        "position": "rope",
        **rope_of(config),
    }
    if config.family == "olmo2":
        return uniform(decoder, stream, full, _mlp(config)).model(config, decoder, semantics)
    order = attention_order(config, decoder.layers, lambda layer: bool((layer + 1) % FULL_EVERY))
    window = config.integer("sliding_window") if "sliding" in order else 0
    sliding = full.model_copy(update={"window": window})
    return mixed(stream, full, sliding, order, _mlp(config)).model(config, decoder, semantics)


def _mlp(config: Config) -> MlpShape:
    return MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_act"))
