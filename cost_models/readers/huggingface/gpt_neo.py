"""GPT-Neo: GPT-2's block without q/k/v biases, full and windowed attention by turns, unscaled scores."""

from collections.abc import Mapping

from cost_models.operators import Embedding
from cost_models.readers.blocks.feed_forward import MlpShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.config import MAX_LAYERS, Config, Default, Scalar, options, sizes
from cost_models.readers.huggingface.dense import (
    FULL,
    SLIDING,
    SizeKeys,
    inner_width,
    mixed,
    multi_head,
    read_multi_head,
)
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **sizes(
        vocab_size=50257,
        max_position_embeddings=2048,
        hidden_size=2048,
        num_layers=24,
        num_heads=16,
        intermediate_size=None,
        tie_word_embeddings=True,
    ),
    **options(
        attention_types=None,
        window_size=256,
        activation_function="gelu_new",
        resid_dropout=0.0,
        embed_dropout=0.0,
        attention_dropout=0.0,
        layer_norm_epsilon=1e-5,
    ),
}
"""GPTNeoConfig of transformers 5.24; a null intermediate_size means 4 x hidden_size."""

KEYS = SizeKeys(
    hidden=("hidden_size",),
    layers=("num_layers", "num_hidden_layers"),
    heads=("num_heads", "num_attention_heads"),
    positions=("max_position_embeddings",),
)
WORDS: Mapping[str, str] = {"global": FULL, "local": SLIDING}
DEFAULT_TURNS = 12
"""A null attention_types means global and local by turns, twelve times (GPTNeoConfig)."""


def read_gpt_neo(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type gpt_neo."""
    config = Config(raw, DEFAULTS, "gpt_neo")
    decoder = read_multi_head(config, name, KEYS)
    stream = Stream(decoder.hidden, norm="layer", dropout=config.number("resid_dropout") > 0)
    full = multi_head(config, decoder, "attention_dropout", out_bias=True, rope=False)
    sliding = full.model_copy(update={"window": config.integer("window_size")})
    mlp = MlpShape(
        width=inner_width(config, "intermediate_size", decoder.hidden),
        gated=False,
        function=config.text("activation_function"),
        bias=True,
    )
    table = Embedding(
        name="embedding",
        vocab_size=decoder.vocab,
        width=decoder.hidden,
        positions=decoder.max_seq_len,
        tie=decoder.embedding_tie,
        dropout=config.number("embed_dropout") > 0,
    )
    semantics: dict[str, Scalar] = {
        "norm_eps": config.number("layer_norm_epsilon"),
        "position": "learned",
        "attention_scaled": False,
    }
    order = _order(config, decoder.layers)
    return mixed(stream, full, sliding, order, mlp).model(config, decoder, semantics, first=(table,))


def _order(config: Config, layers: int) -> tuple[str, ...]:
    """attention_types as [[kinds, repeats], ...], else attention_layers, else by turns."""
    if config.listed("attention_types"):
        order = _expanded(config, config.raw("attention_types"))
    elif config.listed("attention_layers"):
        return config.texts("attention_layers", layers, WORDS)
    else:
        config.raw("attention_types")
        order = (FULL, SLIDING) * DEFAULT_TURNS
    if len(order) != layers:
        raise config.contradiction(
            "attention_types",
            f"attention_types names {len(order)} layers but the model has {layers}; make the two agree",
        )
    return order


def _expanded(config: Config, value: object) -> tuple[str, ...]:
    found: list[str] = []
    for item in value if isinstance(value, list | tuple) else (None,):
        kinds, repeats = item if isinstance(item, list | tuple) and len(item) == 2 else (None, None)
        known = isinstance(kinds, list | tuple) and all(isinstance(k, str) and k in WORDS for k in kinds)
        whole = isinstance(repeats, int) and not isinstance(repeats, bool) and 1 <= repeats <= MAX_LAYERS
        if not (known and whole) or not isinstance(kinds, list | tuple) or not isinstance(repeats, int):
            raise config.contradiction(
                "attention_types",
                f"attention_types is {str(value)[:60]}; give a list such as [[[global, local], 12]]",
            )
        found += [WORDS[kind] for kind in kinds] * min(repeats, MAX_LAYERS // max(1, len(kinds)) + 1)
    return tuple(found)
