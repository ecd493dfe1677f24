"""StableLM: LayerNorm, a quarter of each head rotated, optional q/k/v biases, q/k norms and side-by-side branches."""

from collections.abc import Mapping

from cost_models.readers.blocks.feed_forward import MlpShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import DECODER_DEFAULTS, read_decoder
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.dense import (
    check_whole_heads,
    multi_head,
    rope_of,
    rotated_features,
    uniform,
)
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=50304,
        hidden_size=2560,
        intermediate_size=6912,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=32,
        use_qkv_bias=False,
        qk_layernorm=False,
        use_parallel_residual=False,
    ),
    **options(
        max_position_embeddings=4096, layer_norm_eps=1e-5, hidden_dropout=0.0, partial_rotary_factor=0.25
    ),
}
"""StableLmConfig of transformers 5.24."""


def read_stablelm(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type stablelm."""
    config = Config(raw, DEFAULTS, "stablelm")
    decoder = read_decoder(config, name)
    check_whole_heads(config, decoder.hidden, decoder.heads)
    rotated = rotated_features(config, decoder.hidden // decoder.heads, "partial_rotary_factor", "rope_pct")
    attention = multi_head(
        config,
        decoder,
        "attention_dropout",
        qkv_bias=config.flag("use_qkv_bias"),
        rope_dim=rotated,
        qk_norm=config.flag("qk_layernorm"),
        qk_norm_kind="layer",
        qk_norm_over="heads",
    )
    stream = Stream(decoder.hidden, norm="layer", dropout=config.number("hidden_dropout") > 0)
    mlp = MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_act"))
    norms = 1 if config.flag("use_parallel_residual") else 0
    semantics = {
        "norm_eps": config.number("layer_norm_eps"),
        "position": "rope",
        "rotary_dim": rotated,
        **rope_of(config),
    }
    return uniform(decoder, stream, attention, mlp, norms).model(config, decoder, semantics)
