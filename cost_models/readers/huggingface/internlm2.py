"""InternLM 2 and Baichuan 1 and 2: Llama's block, as the code published beside their weights builds it."""

from collections.abc import Mapping

from cost_models.readers.blocks.feed_forward import MlpShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import DECODER_DEFAULTS, attention_shape, read_decoder
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.dense import SizeKeys, multi_head, read_multi_head, rope_of, uniform
from cost_models.specs.model import ModelSpec

INTERNLM2_DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=103168,
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=None,
        bias=True,
    ),
}
"""InternLM2Config (internlm/internlm2-7b, configuration_internlm2.py)."""

BAICHUAN_DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=64000,
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
    ),
    **options(max_position_embeddings=4096, model_max_length=4096),
}
"""BaichuanConfig (baichuan-inc/Baichuan-7B, configuration_baichuan.py)."""

KEYS = SizeKeys(
    hidden=("hidden_size",),
    layers=("num_hidden_layers",),
    heads=("num_attention_heads",),
    positions=("max_position_embeddings", "model_max_length"),
)
ALIBI_HIDDEN_SIZE = 5120
"""Baichuan's 13B models, the only ones of this width, take ALiBi instead of rotation."""


def read_internlm2(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type internlm2: one fused q/k/v weight, biases on attention where `bias` is true."""
    config = Config(raw, INTERNLM2_DEFAULTS, "internlm2")
    decoder = read_decoder(config, name)
    bias = config.flag("bias")
    attention = attention_shape(config, decoder, qkv_bias=bias, out_bias=bias)
    semantics = {"norm_eps": config.number("rms_norm_eps"), "position": "rope", **rope_of(config)}
    return uniform(decoder, Stream(decoder.hidden), attention, _mlp(config)).model(config, decoder, semantics)


def read_baichuan(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type baichuan: multi-head attention, one fused q/k/v weight, no biases."""
    config = Config(raw, BAICHUAN_DEFAULTS, "baichuan")
    decoder = read_multi_head(config, name, KEYS)
    alibi = decoder.hidden == ALIBI_HIDDEN_SIZE
    attention = multi_head(config, decoder, "attention_dropout", rope=not alibi)
    semantics = {
        "norm_eps": config.number("rms_norm_eps"),
        "position": "alibi" if alibi else "rope",
        **({} if alibi else rope_of(config)),
    }
    return uniform(decoder, Stream(decoder.hidden), attention, _mlp(config)).model(config, decoder, semantics)


def _mlp(config: Config) -> MlpShape:
    return MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_act"))
