"""SmolLM 3: Llama's block, every fourth layer without rotation, a window on those where asked."""

from collections.abc import Mapping

from cost_models.readers.blocks.feed_forward import MlpShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import (
    DECODER_DEFAULTS,
    Decoder,
    attention_shape,
    read_decoder,
)
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.dense import Dense, attention_order, rope_of
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=128256,
        hidden_size=2048,
        intermediate_size=11008,
        num_hidden_layers=36,
        num_attention_heads=16,
        num_key_value_heads=4,
        attention_bias=False,
        mlp_bias=False,
        tie_word_embeddings=True,
    ),
    **options(
        max_position_embeddings=32768,
        rope_theta=2000000.0,
        use_sliding_window=False,
        sliding_window=None,
        no_rope_layer_interval=4,
    ),
}
"""SmolLM3Config of transformers 5.24."""


def read_smollm3(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type smollm3."""
    config = Config(raw, DEFAULTS, "smollm3")
    decoder = read_decoder(config, name)
    bias = config.flag("attention_bias")
    plain = attention_shape(config, decoder, qkv_bias=bias, out_bias=bias)
    rotated = _rotated_layers(config, decoder)
    windows = _windows(config, decoder, rotated)
    order = tuple(
        ("rope" if turns else "nope") + ("_sliding" if window else "_full")
        for turns, window in zip(rotated, windows, strict=True)
    )
    size = config.integer("sliding_window") if any(windows) else 0
    kinds = {
        kind: plain.model_copy(
            update={"rope": kind.startswith("rope"), "window": size if kind.endswith("sliding") else 0}
        )
        for kind in dict.fromkeys(order)
    }
    mlp = MlpShape(
        width=config.integer("intermediate_size"),
        function=config.text("hidden_act"),
        bias=config.flag("mlp_bias"),
    )
    semantics = {"norm_eps": config.number("rms_norm_eps"), "position": "rope", **rope_of(config)}
    return Dense(Stream(decoder.hidden), kinds, order, mlp).model(config, decoder, semantics)


def _rotated_layers(config: Config, decoder: Decoder) -> tuple[bool, ...]:
    """no_rope_layers (1 rotates), else all but every no_rope_layer_interval-th."""
    if config.listed("no_rope_layers"):
        listed = config.integers("no_rope_layers", low=0)
        if len(listed) != decoder.layers:
            raise config.contradiction(
                "no_rope_layers",
                f"no_rope_layers names {len(listed)} layers but the model has {decoder.layers}; "
                "make the two agree",
            )
        return tuple(each > 0 for each in listed)
    interval = config.count("no_rope_layer_interval")
    return tuple((layer + 1) % interval != 0 for layer in range(decoder.layers))


def _windows(config: Config, decoder: Decoder, rotated: tuple[bool, ...]) -> tuple[bool, ...]:
    """Windowed layers, under use_sliding_window only: as listed, else those without rotation."""
    used = config.flag("use_sliding_window") and config.raw("sliding_window") is not None
    order = attention_order(config, decoder.layers, lambda layer: not rotated[layer])
    return tuple(used and each == "sliding" for each in order)
