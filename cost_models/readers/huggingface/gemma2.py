"""Gemma 1 and 2, VaultGemma: tanh-GELU gates, heads of their own size, tied table.

Gemma 2 has four norms, windows by turns and soft caps; VaultGemma is Gemma 2 without the norms after its branches.
"""

from collections.abc import Mapping
from typing import Literal

from cost_models.readers.blocks.feed_forward import MlpShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import DECODER_DEFAULTS, attention_shape, read_decoder
from cost_models.readers.huggingface.config import Config, Default, Scalar, options, sizes
from cost_models.readers.huggingface.dense import attention_order, mixed, rope_of, uniform
from cost_models.specs.model import ModelSpec

_SHARED: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(vocab_size=256000, head_dim=256, attention_bias=False, tie_word_embeddings=True),
    **options(max_position_embeddings=8192, use_bidirectional_attention=None),
}
GEMMA_DEFAULTS: Mapping[str, Default] = {
    **_SHARED,
    **sizes(
        hidden_size=3072,
        intermediate_size=24576,
        num_hidden_layers=28,
        num_attention_heads=16,
        num_key_value_heads=16,
    ),
    **options(hidden_act="gelu_pytorch_tanh"),
}
"""GemmaConfig of transformers 5.24."""

GEMMA2_DEFAULTS: Mapping[str, Default] = {
    **_SHARED,
    **sizes(
        hidden_size=2304,
        intermediate_size=9216,
        num_hidden_layers=26,
        num_attention_heads=8,
        num_key_value_heads=4,
    ),
    **options(
        hidden_activation="gelu_pytorch_tanh",
        sliding_window=4096,
        query_pre_attn_scalar=256,
        final_logit_softcapping=30.0,
        attn_logit_softcapping=50.0,
    ),
}
"""Gemma2Config and VaultGemmaConfig of transformers 5.24, which agree."""


def read_gemma(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type gemma."""
    config = Config(raw, GEMMA_DEFAULTS, "gemma")
    decoder = read_decoder(config, name)
    bias = config.flag("attention_bias")
    attention = attention_shape(config, decoder, qkv_bias=bias, out_bias=bias, causal=_causal(config))
    key = "hidden_activation" if config.listed("hidden_activation") else "hidden_act"
    mlp = MlpShape(width=config.integer("intermediate_size"), function=config.text(key))
    stream = Stream(decoder.hidden, norm_offset=True)
    return uniform(decoder, stream, attention, mlp).model(config, decoder, _semantics(config))


def read_gemma2(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type gemma2: a windowed layer first, then a full one, and so on."""
    return _read_windowed(Config(raw, GEMMA2_DEFAULTS, "gemma2"), name)


def read_vaultgemma(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type vaultgemma: two norms a layer."""
    return _read_windowed(Config(raw, GEMMA2_DEFAULTS, "vaultgemma"), name)


def _read_windowed(config: Config, name: str) -> ModelSpec:
    decoder = read_decoder(config, name)
    bias = config.flag("attention_bias")
    full = attention_shape(config, decoder, qkv_bias=bias, out_bias=bias, causal=_causal(config))
    full = full.model_copy(update={"soft_cap": config.raw("attn_logit_softcapping") is not None})
    order = attention_order(config, decoder.layers, lambda layer: layer % 2 == 0)
    window = config.integer("sliding_window") if "sliding" in order else 0
    sliding = full.model_copy(update={"window": window})
    mlp = MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_activation"))
    semantics = _semantics(config) | {"query_pre_attn_scalar": config.number("query_pre_attn_scalar")}
    for key, word in (
        ("final_logit_softcapping", "logit_soft_cap"),
        ("attn_logit_softcapping", "attention_soft_cap"),
    ):
        if config.raw(key) is not None:
            semantics[word] = config.number(key)
    placement: Literal["sandwich", "pre"] = "sandwich" if config.family == "gemma2" else "pre"
    stream = Stream(decoder.hidden, placement=placement, norm_offset=True)
    return mixed(stream, full, sliding, order, mlp).model(config, decoder, semantics)


def _causal(config: Config) -> bool:
    """A null use_bidirectional_attention means causal."""
    return config.raw("use_bidirectional_attention") is None or not config.flag("use_bidirectional_attention")


def _semantics(config: Config) -> dict[str, Scalar]:
    return {
        "norm_eps": config.number("rms_norm_eps"),
        "norm_weight_offset": 1.0,
        "position": "rope",
        "embedding_scale": "sqrt(hidden_size)",
        **rope_of(config),
    }
