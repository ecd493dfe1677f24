"""What decoder families have in common: their sizes, checks between sizes, and the model put together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cost_models.operators.base import Operator
from cost_models.operators.embedding import EMBEDDING_TIE
from cost_models.readers.blocks.attention import AttentionShape
from cost_models.readers.blocks.feed_forward import MoeShape
from cost_models.readers.blocks.layers import framed, layer_kind
from cost_models.readers.blocks.stream import HEAD_TIE, Stream, embedding, head
from cost_models.readers.huggingface.config import Config, Default, Scalar, options, sizes
from cost_models.specs.model import LayerKind, ModelSpec

ATTENTION_TYPES: Mapping[str, str] = {"full_attention": "full", "sliding_attention": "sliding"}
"""Values of layer_types in attention-only families, and the words used here."""

DECODER_DEFAULTS: Mapping[str, Default] = {
    **sizes(tie_word_embeddings=False, head_dim=None),
    **options(
        hidden_act="silu",
        max_position_embeddings=2048,
        rms_norm_eps=1e-6,
        rope_theta=10000.0,
        attention_dropout=0.0,
    ),
}
"""Defaults shared by the decoder families (configuration classes of transformers 5.24)."""


@dataclass(frozen=True, slots=True)
class Decoder:
    """Sizes of a decoder."""

    name: str
    hidden: int
    layers: int
    vocab: int
    heads: int
    kv_heads: int
    max_seq_len: int
    tied: bool

    @property
    def embedding_tie(self) -> str:
        """Tie id of the token table: shared with the head, or with nothing."""
        return EMBEDDING_TIE if self.tied else ""


@dataclass(frozen=True, slots=True)
class Parts:
    """Kinds of blocks, their order, the last pieces of a decoder and what it takes to build it."""

    kinds: Mapping[str, Sequence[Operator]]
    order: Sequence[str]
    semantics: Mapping[str, Scalar]
    moe: MoeShape | None = None
    mtp_layers: int = 0
    mtp: Sequence[Operator] = field(default=())
    soft_cap: bool = False
    first: Sequence[Operator] = field(default=())
    """The embedding layer, where it is more than a token table."""
    last: Sequence[Operator] = field(default=())
    """The head layer, where it is more than norm, matrix and loss."""
    boundary: int = 0
    """Features handed from layer to layer, where they are more than the stream's."""


def read_decoder(config: Config, name: str, layers: int = 0) -> Decoder:
    """Sizes that every decoder config names alike; `layers` where a pattern has told their number."""
    heads = config.count("num_attention_heads")
    kv_heads = config.optional_integer("num_key_value_heads")
    if kv_heads is None:
        kv_heads = heads
        config.note("num_key_value_heads", str(heads), changes_parameters=True)
    if heads % kv_heads:
        raise config.contradiction(
            "num_key_value_heads",
            f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}; "
            f"use a divisor of {heads}",
        )
    return Decoder(
        name=name,
        hidden=config.integer("hidden_size"),
        layers=layers or config.count("num_hidden_layers"),
        vocab=config.integer("vocab_size"),
        heads=heads,
        kv_heads=kv_heads,
        max_seq_len=config.integer("max_position_embeddings", low=0),
        tied=config.flag("tie_word_embeddings"),
    )


def refuse_tied(config: Config) -> None:
    """Some classes keep a head of their own whatever the config says."""
    if config.flag("tie_word_embeddings"):
        raise config.contradiction(
            "tie_word_embeddings",
            f"tie_word_embeddings is true, but the class of {config.family} has a head of its own; set it to false",
        )


def refuse_untied(config: Config) -> None:
    """Some classes, untied, hold tables that nothing reads; no published model is one."""
    if not config.flag("tie_word_embeddings"):
        raise config.contradiction(
            "tie_word_embeddings",
            f"tie_word_embeddings is false, which no published {config.family} is; set it to true",
        )


def refuse_cross_attention(config: Config) -> None:
    """A decoder that reads another model cannot be trained alone."""
    if config.flag("add_cross_attention"):
        raise config.contradiction(
            "add_cross_attention", "add_cross_attention is true, which needs a second model; set it to false"
        )


def head_dim(config: Config, decoder: Decoder) -> int:
    """Stated head size, else hidden / heads, which must be whole."""
    stated = config.optional_integer("head_dim", "attention_head_dim")
    if stated is not None:
        return stated
    if decoder.hidden % decoder.heads:
        raise config.contradiction(
            "hidden_size",
            f"hidden_size {decoder.hidden} is not a multiple of num_attention_heads {decoder.heads} "
            "and there is no head_dim; state head_dim or change one of the two",
        )
    derived = decoder.hidden // decoder.heads
    config.note("head_dim", str(derived), changes_parameters=True)
    return derived


def attention_shape(config: Config, decoder: Decoder, **features: bool | int) -> AttentionShape:
    """Grouped-query attention of a decoder with the features of its family."""
    return AttentionShape.model_validate(
        {
            "heads": decoder.heads,
            "kv_heads": decoder.kv_heads,
            "head_dim": head_dim(config, decoder),
            "dropout": config.number("attention_dropout") > 0,
            **features,
        }
    )


def check_experts(config: Config, experts: int, top_k: int, key: str = "num_experts_per_tok") -> None:
    """No token can be routed to more experts than there are."""
    if top_k > experts:
        raise config.contradiction(
            key, f"{key} {top_k} is more than the {experts} experts; use at most {experts}"
        )


def rope_semantics(config: Config) -> dict[str, Scalar]:
    """Rotary settings under either spelling: rope_theta and rope_scaling, or rope_parameters."""
    found = config.flat("rope_scaling", "rope_parameters")
    if not any(key.endswith("rope_theta") for key in found):
        found["rope_theta"] = config.number("rope_theta")
    return found


def assemble(config: Config, decoder: Decoder, stream: Stream, parts: Parts) -> ModelSpec:
    """Embedding, blocks, multi-token-prediction layers and head as one model."""
    head_tie = decoder.embedding_tie or (HEAD_TIE if parts.mtp_layers else "")
    table_tie = EMBEDDING_TIE if parts.mtp_layers else decoder.embedding_tie
    first = parts.first or (embedding(decoder.vocab, decoder.hidden, table_tie),)
    width = parts.boundary or decoder.hidden
    kinds: dict[str, LayerKind] = {"embedding": layer_kind("embedding", first, width)}
    for kind, operators in parts.kinds.items():
        if kind in parts.order:
            kinds[kind] = layer_kind(kind, operators, width)
    if parts.mtp_layers:
        kinds["mtp"] = layer_kind("mtp", parts.mtp, decoder.hidden, cut_after=False)
    last = parts.last or head(stream, decoder.vocab, head_tie, parts.soft_cap)
    kinds["head"] = layer_kind("head", last, decoder.hidden, cut_after=False)
    routed = parts.moe if "moe" in "".join(parts.order) else None
    return ModelSpec(
        name=decoder.name,
        family=config.family,
        layers=framed(parts.order, mtp_layers=parts.mtp_layers),
        kinds=kinds,
        vocab_size=decoder.vocab,
        hidden_size=decoder.hidden,
        num_attention_heads=decoder.heads,
        num_kv_heads=decoder.kv_heads,
        num_experts=routed.experts if routed else 0,
        num_experts_per_token=routed.top_k if routed else 0,
        max_seq_len=decoder.max_seq_len,
        tied_embeddings=decoder.tied,
        semantics=dict(parts.semantics),
        assumed=config.assumed,
        reader="huggingface",
    )
