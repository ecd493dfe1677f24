"""Gemma 3n, its text model: several residual streams, inputs by layer, low-rank branches, shared keys and values."""

from collections.abc import Mapping

from cost_models.operators import Residual, Scale
from cost_models.operators.base import Operator
from cost_models.readers.blocks.feed_forward import MlpShape
from cost_models.readers.blocks.stream import Stream, column, embedding, head, replicated, row, scalars
from cost_models.readers.huggingface.common import DECODER_DEFAULTS, Decoder, Parts, assemble, read_decoder
from cost_models.readers.huggingface.config import Config, Default, Scalar, options, sizes
from cost_models.readers.huggingface.dense import attention_order, rope_of
from cost_models.readers.huggingface.gemma4 import KEPT, SHARED, kept_layers
from cost_models.readers.huggingface.gemma4_blocks import Gemma4Attention, block, layer_inputs
from cost_models.specs.counts import WIDENING
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=262400,
        hidden_size=2048,
        intermediate_size=16384,
        num_hidden_layers=35,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=256,
        tie_word_embeddings=True,
        attention_bias=False,
        vocab_size_per_layer_input=262144,
        hidden_size_per_layer_input=256,
        altup_num_inputs=4,
        num_kv_shared_layers=15,
        laurel_rank=64,
    ),
    **options(
        hidden_activation="gelu_pytorch_tanh",
        max_position_embeddings=32768,
        sliding_window=512,
        final_logit_softcapping=30.0,
        activation_sparsity_pattern=None,
    ),
}
"""Gemma3nTextConfig of transformers 5.24."""

FULL_EVERY = 5
"""Without layer_types every so many layers attend to all positions."""

SPARSE_LAYERS = 10
"""Without a pattern the first layers of a deeper model keep only the largest activations."""


def read_gemma3n_text(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type gemma3n_text."""
    config = Config(raw, DEFAULTS, "gemma3n_text")
    decoder = read_decoder(config, name)
    stream, streams = Stream(decoder.hidden, placement="sandwich"), config.count("altup_num_inputs", low=2)
    order, widths = _order(config, decoder.layers), _widths(config, decoder.layers)
    kinds = {}
    named = tuple(
        f"{kind}_{width}" if len(set(widths)) > 1 else kind for kind, width in zip(order, widths, strict=True)
    )
    for kind, plain, width in dict.fromkeys(zip(named, order, widths, strict=True)):
        mlp = MlpShape(width=width, function=config.text("hidden_activation"))
        inputs = config.integer("hidden_size_per_layer_input")
        own = block(stream, _attention(config, decoder, plain), mlp, None, inputs)
        kinds[kind] = (
            *_predicted(stream, streams),
            *_low_rank(config, stream),
            *own,
            _corrected(stream, streams),
        )
    parts = Parts(
        kinds=kinds,
        order=named,
        semantics=_semantics(config),
        first=_first(config, decoder, stream, streams),
        last=_last(config, decoder, stream, streams),
        boundary=streams * decoder.hidden,
    )
    return assemble(config, decoder, stream, parts)


def _predicted(stream: Stream, streams: int) -> tuple[Operator, ...]:
    """Every stream as a learned sum of all (AltUp, Baykal et al. 2023), with weights from the one that is read."""
    wide = streams * stream.hidden
    return (
        stream.normalise("altup_norm", "x"),
        replicated("altup_router", "altup_norm", stream.hidden, streams),
        scalars("altup_mixing", streams * streams + streams**3),
        Residual(name="altup_prediction", inputs=("x", "altup_router"), width=wide),
    )


def _corrected(stream: Stream, streams: int) -> Operator:
    """All streams after the layer, by how far the one that was read is from its prediction."""
    return Residual(name="altup_correction", inputs=("altup_prediction",), width=streams * stream.hidden)


def _low_rank(config: Config, stream: Stream) -> tuple[Operator, ...]:
    """A branch of two narrow matrices beside attention, with a norm after it; the scale of the correction."""
    rank = config.integer("laurel_rank")
    return (
        column("laurel_left", "attn_norm", stream.hidden, rank),
        row("laurel_right", "laurel_left", rank, stream.hidden),
        stream.normalise("laurel_norm", "laurel_right"),
        Scale(name="altup_scale", inputs=("laurel_norm",), width=stream.hidden, weights=1),
    )


def _attention(config: Config, decoder: Decoder, kind: str) -> Gemma4Attention:
    own = SHARED not in kind
    return Gemma4Attention(
        heads=decoder.heads,
        kv_heads=decoder.kv_heads,
        head_dim=config.integer("head_dim"),
        window=config.integer("sliding_window") if kind.startswith("sliding") else 0,
        causal=True,
        bias=config.flag("attention_bias"),
        dropout=config.number("attention_dropout") > 0,
        own_keys=own,
        own_values=own,
    )


def _order(config: Config, layers: int) -> tuple[str, ...]:
    """Window or not, keys and values of its own or not, sparse activations or not."""
    types = attention_order(config, layers, lambda layer: bool((layer + 1) % FULL_EVERY))
    if not config.listed("layer_types"):
        config.note("layer_types", f"every {FULL_EVERY}th full", changes_parameters=False)
    shared = config.count("num_kv_shared_layers", low=0)
    own = layers - shared
    if shared and (own < 1 or set(types[:own]) != set(types)):
        raise config.contradiction(
            "num_kv_shared_layers",
            f"num_kv_shared_layers {shared} of {layers} layers leave no layer of each type to share from; use fewer",
        )
    sparse, kept = _sparse(config, layers), kept_layers(types[:own]) if shared else frozenset()
    return tuple(
        kind + (KEPT if i in kept else "" if i < own else SHARED) + ("_sparse" if sparse[i] else "")
        for i, kind in enumerate(types)
    )


def _sparse(config: Config, layers: int) -> tuple[bool, ...]:
    pattern = config.raw("activation_sparsity_pattern")
    if pattern is None:
        return tuple(i < SPARSE_LAYERS < layers for i in range(layers))
    shares = pattern if isinstance(pattern, list | tuple) else ()
    if len(shares) != layers or not all(isinstance(each, int | float) for each in shares):
        raise config.contradiction(
            "activation_sparsity_pattern",
            f"activation_sparsity_pattern must list {layers} numbers, one a layer; drop or complete it",
        )
    return tuple(bool(each > 0) for each in shares)


def _widths(config: Config, layers: int) -> tuple[int, ...]:
    """One width for all layers, or one each."""
    if not isinstance(config.raw("intermediate_size"), list | tuple):
        return (config.integer("intermediate_size"),) * layers
    widths = config.integers("intermediate_size")
    if len(widths) != layers:
        raise config.contradiction(
            "intermediate_size",
            f"intermediate_size names {len(widths)} layers of {layers}; make the two agree",
        )
    return widths


def _first(config: Config, decoder: Decoder, stream: Stream, streams: int) -> tuple[Operator, ...]:
    """The token table, a second one for the inputs of all layers, and the further streams made of the first."""
    width, vocab = config.integer("hidden_size_per_layer_input"), config.integer("vocab_size_per_layer_input")
    return (
        embedding(decoder.vocab, decoder.hidden, decoder.embedding_tie),
        *layer_inputs(stream, vocab, decoder.layers, width),
        replicated(f"{WIDENING}_streams", "embedding", stream.hidden, (streams - 1) * stream.hidden),
    )


def _last(config: Config, decoder: Decoder, stream: Stream, streams: int) -> tuple[Operator, ...]:
    """The further streams through a matrix each, all averaged; final norm, head and loss."""
    capped = config.raw("final_logit_softcapping") is not None
    final, *rest = head(stream, decoder.vocab, decoder.embedding_tie, capped)
    return (
        replicated("unembed_streams", "x", stream.hidden, (streams - 1) * stream.hidden),
        Residual(name="mean_stream", inputs=("x", "unembed_streams"), width=streams * stream.hidden),
        final.model_copy(update={"inputs": ("mean_stream",)}),
        *rest,
    )


def _semantics(config: Config) -> dict[str, Scalar]:
    return {
        "norm": "rms",
        "norm_eps": config.number("rms_norm_eps"),
        "activation": config.text("hidden_activation"),
        "position": "rope",
        **rope_of(config),
    }
