"""DeBERTa (He et al. 2020), V2 and V3: BERT whose attention has terms of its own for relative positions."""

from collections.abc import Mapping

from cost_models.operators import DisentangledBias, Embedding, Linear, PositionTable
from cost_models.operators.base import Operator
from cost_models.operators.linear import Part
from cost_models.readers.blocks.attention import AttentionShape, attention_branch
from cost_models.readers.blocks.feed_forward import MlpShape, feed_forward_sublayer
from cost_models.readers.blocks.stream import Branch, Stream, chain, sublayer
from cost_models.readers.huggingface.common import Decoder, Parts, assemble
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.encoder import (
    BERT_DEFAULTS,
    MaskedHead,
    embedding_layer,
    encoder_sizes,
    masked_head,
)
from cost_models.specs.model import ModelSpec

_SHARED: Mapping[str, Default] = {
    **BERT_DEFAULTS,
    **sizes(
        type_vocab_size=0,
        relative_attention=False,
        max_relative_positions=-1,
        position_biased_input=True,
        pos_att_type=None,
        legacy=True,
    ),
    **options(layer_norm_eps=1e-7),
}
DEBERTA_DEFAULTS: Mapping[str, Default] = {**_SHARED, **sizes(vocab_size=50265)}
DEBERTA2_DEFAULTS: Mapping[str, Default] = {
    **_SHARED,
    **sizes(
        vocab_size=128100,
        hidden_size=1536,
        num_hidden_layers=24,
        num_attention_heads=24,
        intermediate_size=6144,
        position_buckets=-1,
        share_att_key=False,
        norm_rel_ebd="none",
        conv_kernel_size=0,
        conv_groups=1,
    ),
}
"""DebertaConfig and DebertaV2Config of transformers 5.24."""


def read_deberta(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type deberta, trained on masked tokens."""
    return _read(Config(raw, DEBERTA_DEFAULTS, "deberta"), name)


def read_deberta_v2(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type deberta-v2 (V2 and V3), trained on masked tokens."""
    return _read(Config(raw, DEBERTA2_DEFAULTS, "deberta-v2"), name)


def _read(config: Config, name: str) -> ModelSpec:
    model = encoder_sizes(config, name)
    if config.listed("embedding_size") and config.integer("embedding_size") != model.hidden:
        raise config.contradiction(
            "embedding_size",
            f"embedding_size {config.integer('embedding_size')} is not hidden_size {model.hidden}, which no "
            "published model has; make the two agree",
        )
    if not config.flag("legacy"):
        raise config.contradiction("legacy", "legacy is false, a head that is not read; set it to true")
    span = _span(config, model) if config.flag("relative_attention") else 0
    dropout = config.number("hidden_dropout_prob") > 0
    stream = Stream(model.hidden, norm="layer", placement="post", dropout=dropout)
    function = config.text("hidden_act")
    head = MaskedHead(
        vocab=model.vocab,
        width=model.hidden,
        function=function,
        tie=model.embedding_tie,
        second_bias=not model.tied,
    )
    parts = Parts(
        kinds={"dense": _block(config, stream, model, span)},
        order=("dense",) * model.layers,
        first=_embedding(config, model, span, dropout),
        last=masked_head(model.hidden, head),
        semantics={
            "norm": "layer",
            "norm_eps": config.number("layer_norm_eps"),
            "activation": function,
            "position": "disentangled" if span else "learned",
            "causal": False,
        },
    )
    return assemble(config, model, stream, parts)


def _span(config: Config, model: Decoder) -> int:
    """Positions to each side of the relative table: buckets (V2), else the longest distance."""
    if config.family == "deberta-v2":
        buckets = config.integer("position_buckets", low=-1)
        if buckets > 0:
            return buckets
    longest = config.integer("max_relative_positions", low=-1)
    return longest if longest > 0 else model.max_seq_len


def _terms(config: Config) -> tuple[str, ...]:
    """Position terms: a list, or one text with bars between them."""
    value = config.raw("pos_att_type")
    if isinstance(value, str):
        value = [each for each in value.lower().split("|") if each]
    terms = tuple(str(each).strip().lower() for each in value) if isinstance(value, list | tuple) else ()
    unknown = sorted(set(terms) - {"c2p", "p2c"})
    if unknown or not (value is None or isinstance(value, list | tuple)):
        shown = ", ".join(unknown) or str(value)
        raise config.contradiction("pos_att_type", f"pos_att_type is {shown[:60]}; use c2p, p2c or both")
    return tuple(dict.fromkeys(terms))


def _embedding(config: Config, model: Decoder, span: int, dropout: bool) -> tuple[Operator, ...]:
    """Tables and norm; the relative table, which all layers read; V2's convolution over the embedded tokens."""
    table = Embedding(
        name="embedding",
        vocab_size=model.vocab,
        width=model.hidden,
        positions=model.max_seq_len if config.flag("position_biased_input") else 0,
        types=config.integer("type_vocab_size", low=0),
        tie=model.embedding_tie,
        dropout=dropout,
    )
    found = list(embedding_layer(table, model.hidden))
    second, hidden = config.family == "deberta-v2", model.hidden
    if span:
        normed = second and "layer_norm" in config.text("norm_rel_ebd").lower()
        elements = 2 * span * hidden + (2 * hidden if normed else 0)
        found.append(PositionTable(name="relative_table", inputs=("embedding_norm",), elements=elements))
    kernel = config.integer("conv_kernel_size", low=0, high=1024) if second else 0
    if kernel:
        found += _convolution(config, hidden, kernel)
    return tuple(found)


def _convolution(config: Config, hidden: int, kernel: int) -> tuple[Operator, ...]:
    """A convolution over tokens as a linear over `kernel` of them, and a norm."""
    groups = config.count("conv_groups")
    if hidden % groups:
        raise config.contradiction(
            "conv_groups", f"hidden_size {hidden} is not a multiple of conv_groups {groups}; use a divisor"
        )
    stream = Stream(hidden, norm="layer")
    convolution = Linear(
        name="convolution",
        inputs=("embedding_norm",),
        in_features=kernel * hidden // groups,
        parts=(Part(name="weight", features=hidden),),
        split="replicated",
        bias=True,
        saves_input=False,
    )
    return (convolution, stream.normalise("convolution_norm", "convolution"))


def _block(config: Config, stream: Stream, model: Decoder, span: int) -> tuple[Operator, ...]:
    first = config.family == "deberta"
    attention = AttentionShape(
        heads=model.heads,
        head_dim=model.hidden // model.heads,
        qkv_bias=True,
        key_bias=not first,
        out_bias=True,
        rope=False,
        causal=False,
        dropout=config.number("attention_probs_dropout_prob") > 0,
    )
    mlp = MlpShape(
        width=config.integer("intermediate_size"), gated=False, function=config.text("hidden_act"), bias=True
    )
    terms = _terms(config) if span else ()
    own = bool(terms) and (first or not config.flag("share_att_key"))

    def attend(source: str) -> Branch:
        branch = attention_branch(attention, stream.hidden, source)
        if not terms:
            return branch
        weights = len(terms) if own else 0
        biases = int("p2c" in terms) if first else weights
        bias = DisentangledBias(
            name="position_scores",
            inputs=("q", "k"),
            hidden=stream.hidden,
            heads=model.heads,
            span=span,
            terms=len(terms),
            weights=weights,
            biases=biases,
        )
        return Branch((branch.operators[0], bias, *branch.operators[1:]), branch.outputs)

    return chain(lambda source: sublayer(stream, "attn", source, attend), feed_forward_sublayer(stream, mlp))
