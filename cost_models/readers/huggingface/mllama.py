"""Llama 3.2 Vision, its text model alone: Llama's layers between layers that read an image, idle without one."""

from collections.abc import Mapping

from cost_models.operators import IdleWeights
from cost_models.operators.base import Operator
from cost_models.readers.blocks.attention import attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, feed_forward_sublayer
from cost_models.readers.blocks.stream import Stream, chain, embedding
from cost_models.readers.huggingface.common import (
    DECODER_DEFAULTS,
    Parts,
    assemble,
    attention_shape,
    read_decoder,
)
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.routed import semantics
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=40,
        num_attention_heads=32,
        num_key_value_heads=8,
        cross_attention_layers=None,
    ),
    **options(max_position_embeddings=131072, rms_norm_eps=1e-5, dropout=0.0),
}
"""MllamaTextConfig of transformers 5.24."""

CROSS_LAYERS = (3, 8, 13, 18, 23, 28, 33, 38)
"""Layers that read the image where cross_attention_layers is null."""

FURTHER_ROWS = 8
"""Rows of the token table beyond the vocabulary."""

CROSS_NUMBERS = 2
"""Gates of such a layer: one number for its attention, one for its feed-forward."""


def read_mllama_text_model(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type mllama_text_model: layers that read an image are stored, and left out without one."""
    config = Config(raw, DEFAULTS, "mllama_text_model")
    decoder = read_decoder(config, name)
    if decoder.tied:
        raise config.contradiction(
            "tie_word_embeddings",
            "tie_word_embeddings is true, but table and head differ in rows; set it to false",
        )
    stream, head_size = Stream(decoder.hidden), decoder.hidden // decoder.heads
    if decoder.hidden % decoder.heads:
        raise config.contradiction(
            "hidden_size",
            f"hidden_size {decoder.hidden} is not a multiple of num_attention_heads {decoder.heads}; make it one",
        )
    attention = attention_shape(config, decoder)
    mlp = MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_act"))
    block = chain(attention_sublayer(stream, attention), feed_forward_sublayer(stream, mlp))
    stored = sum(group.elements for operator in block for group in operator.parameters())
    idle: tuple[Operator, ...] = (
        IdleWeights(name="cross_idle", elements=stored + 2 * head_size + CROSS_NUMBERS),
    )
    cross = _cross_layers(config, decoder.layers)
    parts = Parts(
        kinds={"dense": block, "cross": idle},
        order=tuple("cross" if layer in cross else "dense" for layer in range(decoder.layers)),
        semantics=semantics(config),
        first=(embedding(decoder.vocab + FURTHER_ROWS, decoder.hidden),),
    )
    return assemble(config, decoder, stream, parts)


def _cross_layers(config: Config, layers: int) -> tuple[int, ...]:
    if config.raw("cross_attention_layers") is None:
        return CROSS_LAYERS
    listed = config.integers("cross_attention_layers", low=0)
    if max(listed, default=0) >= layers:
        raise config.contradiction(
            "cross_attention_layers",
            f"cross_attention_layers names layer {max(listed)} of {layers}; use smaller numbers",
        )
    return listed
