"""EXAONE 3 (Llama's block) and 4: norms after each branch, q/k norms, windows 3:1, full layers without rotation."""

from collections.abc import Mapping

from cost_models.readers.blocks.feed_forward import MlpShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import DECODER_DEFAULTS, attention_shape, read_decoder
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.dense import attention_order, every_nth_full, mixed, rope_of, uniform
from cost_models.specs.model import ModelSpec

_SHARED: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(vocab_size=102400, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32),
    **options(rms_norm_eps=1e-5),
}
EXAONE_DEFAULTS: Mapping[str, Default] = {
    **_SHARED,
    **sizes(intermediate_size=14336, num_key_value_heads=8, attention_bias=False, mlp_bias=False),
    **options(max_position_embeddings=4096, rope_theta=500000.0),
}
"""ExaoneConfig of transformers 5.24."""

EXAONE4_DEFAULTS: Mapping[str, Default] = {
    **_SHARED,
    **sizes(intermediate_size=16384, num_key_value_heads=32),
    **options(sliding_window=4096, sliding_window_pattern=4),
}
"""Exaone4Config of transformers 5.24."""

SPELLINGS: Mapping[str, str] = {
    "num_layers": "num_hidden_layers",
    "layer_norm_epsilon": "rms_norm_eps",
    "activation_function": "hidden_act",
}
"""Keys of the first EXAONE configs, and what they are called now."""


def read_exaone(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type exaone, under its first spelling or the library's."""
    renamed = {new: raw[old] for old, new in SPELLINGS.items() if old in raw and new not in raw}
    config = Config({**raw, **renamed}, EXAONE_DEFAULTS, "exaone")
    decoder = read_decoder(config, name)
    bias = config.flag("attention_bias")
    attention = attention_shape(config, decoder, qkv_bias=bias, out_bias=bias)
    mlp = MlpShape(
        width=config.integer("intermediate_size"),
        function=config.text("hidden_act"),
        bias=config.flag("mlp_bias"),
    )
    semantics = {"norm_eps": config.number("rms_norm_eps"), "position": "rope", **rope_of(config)}
    return uniform(decoder, Stream(decoder.hidden), attention, mlp).model(config, decoder, semantics)


def read_exaone4(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type exaone4; without a window every layer is full and rotates."""
    config = Config(raw, EXAONE4_DEFAULTS, "exaone4")
    decoder = read_decoder(config, name)
    windowed = config.raw("sliding_window") is not None
    full = attention_shape(config, decoder, qk_norm=True, rope=not windowed)
    order = _order(config, decoder.layers) if windowed else ("full",) * decoder.layers
    window = config.integer("sliding_window") if "sliding" in order else 0
    sliding = full.model_copy(update={"rope": True, "window": window})
    mlp = MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_act"))
    semantics = {
        "norm_eps": config.number("rms_norm_eps"),
        "position": "rope",
        "rope_on": "sliding" if windowed else "all",
        **rope_of(config),
    }
    stream = Stream(decoder.hidden, placement="inner")
    return mixed(stream, full, sliding, order, mlp).model(config, decoder, semantics)


def _order(config: Config, layers: int) -> tuple[str, ...]:
    """As listed; else a pattern such as LLLG (the last layer always full), or every n-th layer full."""
    if config.listed("layer_types") or not isinstance(config.raw("sliding_window_pattern"), str):
        return every_nth_full(config, layers, "sliding_window_pattern")
    pattern = config.text("sliding_window_pattern")
    if not pattern or set(pattern) - {"L", "G"}:
        raise config.contradiction(
            "sliding_window_pattern",
            f"sliding_window_pattern is {pattern[:40]!r}; give letters L and G, or a whole number",
        )
    return attention_order(
        config, layers, lambda layer: pattern[layer % len(pattern)] == "L" and layer != layers - 1
    )
