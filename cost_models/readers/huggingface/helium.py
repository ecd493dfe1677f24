"""Helium: Llama's block; biases, where asked, on q/k/v only."""

from collections.abc import Mapping

from cost_models.readers.blocks.feed_forward import MlpShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import DECODER_DEFAULTS, attention_shape, read_decoder
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.dense import rope_of, uniform
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=48000,
        hidden_size=2560,
        intermediate_size=7040,
        num_hidden_layers=24,
        num_attention_heads=20,
        num_key_value_heads=20,
        head_dim=128,
        attention_bias=False,
        mlp_bias=False,
    ),
    **options(max_position_embeddings=4096, rms_norm_eps=1e-8, rope_theta=100000.0),
}
"""HeliumConfig of transformers 5.24."""


def read_helium(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type helium, whose output linear is square."""
    config = Config(raw, DEFAULTS, "helium")
    decoder = read_decoder(config, name)
    attention = attention_shape(config, decoder, qkv_bias=config.flag("attention_bias"))
    if attention.head_dim * decoder.heads != decoder.hidden:
        raise config.contradiction(
            "head_dim",
            f"head_dim {attention.head_dim} x num_attention_heads {decoder.heads} is not hidden_size "
            f"{decoder.hidden}, as HeliumForCausalLM needs; change one of them",
        )
    mlp = MlpShape(
        width=config.integer("intermediate_size"),
        function=config.text("hidden_act"),
        bias=config.flag("mlp_bias"),
    )
    semantics = {"norm_eps": config.number("rms_norm_eps"), "position": "rope", **rope_of(config)}
    return uniform(decoder, Stream(decoder.hidden), attention, mlp).model(config, decoder, semantics)
