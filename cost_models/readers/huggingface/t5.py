"""T5, T5 v1.1, mT5 and UMT5: two stacks, relative position biases, cross-attention, RMSNorm, no biases."""

from collections.abc import Mapping
from dataclasses import dataclass

from cost_models.operators.base import Operator
from cost_models.operators.embedding import EMBEDDING_TIE
from cost_models.readers.blocks.attention import AttentionShape, attention_sublayer
from cost_models.readers.blocks.cross_attention import cross_attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, MoeShape, feed_forward_sublayer
from cost_models.readers.blocks.layers import layer_kind, runs
from cost_models.readers.blocks.stream import Stream, chain, embedding, head
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.specs.model import Layer, LayerKind, ModelSpec, Role, Stack

_T5: Mapping[str, Default] = {
    **sizes(
        vocab_size=32128,
        d_model=512,
        d_kv=64,
        d_ff=2048,
        num_layers=6,
        num_decoder_layers=None,
        num_heads=8,
        relative_attention_num_buckets=32,
        feed_forward_proj="relu",
        tie_word_embeddings=True,
        scale_decoder_outputs=True,
    ),
    **options(
        dropout_rate=0.1, layer_norm_epsilon=1e-6, relative_attention_max_distance=128, n_positions=512
    ),
}
_MT5: Mapping[str, Default] = {
    **_T5,
    **sizes(vocab_size=250112, d_ff=1024, num_layers=8, num_heads=6, feed_forward_proj="gated-gelu"),
}
DEFAULTS: Mapping[str, Mapping[str, Default]] = {"t5": _T5, "mt5": _MT5, "umt5": _MT5}
"""T5Config, MT5Config and UMT5Config of transformers 5.24; null num_decoder_layers means num_layers."""

FEED_FORWARD: Mapping[str, tuple[bool, str]] = {
    "relu": (False, "relu"),
    "gelu": (False, "gelu"),
    "gated-gelu": (True, "gelu_new"),
    "gated-silu": (True, "silu"),
    "gated-relu": (True, "relu"),
}
"""feed_forward_proj: whether it is gated, and its function (gated-gelu is the tanh form)."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """What the layers of both stacks are made of."""

    stream: Stream
    heads: int
    head_dim: int
    buckets: int
    every_layer: bool
    mlp: MlpShape | MoeShape

    def attention(self, causal: bool, first: bool) -> AttentionShape:
        """Self-attention; relative biases stand in the first layer of a stack (UMT5: in every one)."""
        return AttentionShape(
            heads=self.heads,
            head_dim=self.head_dim,
            rope=False,
            causal=causal,
            dropout=self.stream.dropout,
            relative_buckets=self.buckets if first or self.every_layer else 0,
        )

    def encoder_layer(self, first: bool) -> tuple[Operator, ...]:
        """Self-attention over the whole input, feed-forward."""
        return chain(
            attention_sublayer(self.stream, self.attention(causal=False, first=first)),
            feed_forward_sublayer(self.stream, self.mlp),
        )

    def decoder_layer(self, first: bool) -> tuple[Operator, ...]:
        """Causal self-attention, cross-attention, feed-forward."""
        return chain(
            attention_sublayer(self.stream, self.attention(causal=True, first=first)),
            cross_attention_sublayer(self.stream, self.attention(causal=False, first=False), first),
            feed_forward_sublayer(self.stream, self.mlp),
        )


def read_t5(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type t5, mt5 or umt5."""
    family = str(raw.get("model_type", "t5"))
    config = Config(raw, DEFAULTS[family], family)
    shapes = _shapes(config)
    vocab, hidden = config.integer("vocab_size"), shapes.stream.hidden
    tied = _tied(config)
    encoders = config.count("num_layers", "num_hidden_layers")
    decoders = config.optional_integer("num_decoder_layers") or encoders
    layers = _layers(config, encoders, decoders)
    used = {layer.kind for layer in layers}
    return ModelSpec(
        name=name,
        family=family,
        layers=layers,
        kinds={key: kind for key, kind in _kinds(shapes, vocab, tied).items() if key in used},
        stacks=(
            Stack(name="encoder", length="seq_len"),
            Stack(name="decoder", length="decoder_seq_len", reads=("encoder",)),
        ),
        vocab_size=vocab,
        hidden_size=hidden,
        num_attention_heads=shapes.heads,
        num_kv_heads=shapes.heads,
        max_seq_len=config.integer("n_positions"),
        tied_embeddings=tied,
        semantics={
            "norm": "rms",
            "norm_eps": config.number("layer_norm_epsilon"),
            "activation": shapes.mlp.function,
            "position": "relative",
            "relative_max_distance": config.integer("relative_attention_max_distance"),
            "attention_scaled": False,
            "scale_decoder_outputs": tied,
        },
        assumed=config.assumed,
        reader="huggingface",
    )


def _shapes(config: Config) -> Shapes:
    gated, function = FEED_FORWARD[config.text("feed_forward_proj", tuple(FEED_FORWARD))]
    if config.listed("is_gated_act") and config.flag("is_gated_act") != gated:
        raise config.contradiction(
            "is_gated_act",
            f"is_gated_act is {not gated}, but feed_forward_proj says {gated}; drop is_gated_act",
        )
    return Shapes(
        stream=Stream(config.integer("d_model", "hidden_size"), dropout=config.number("dropout_rate") > 0),
        heads=config.count("num_heads", "num_attention_heads"),
        head_dim=config.integer("d_kv"),
        buckets=config.integer("relative_attention_num_buckets"),
        every_layer=config.family == "umt5",
        mlp=MlpShape(width=config.integer("d_ff"), gated=gated, function=function),
    )


def _tied(config: Config) -> bool:
    """T5 v1.1 has its own head: tie_word_embeddings false or, in newer releases, unscaled outputs."""
    if not config.flag("tie_word_embeddings"):
        return False
    return not config.states("scale_decoder_outputs") or config.flag("scale_decoder_outputs")


def _layers(config: Config, encoders: int, decoders: int) -> tuple[Layer, ...]:
    every = config.family == "umt5"
    first = (1, "encoder_first", "decoder_first") if not every else (0, "", "")
    encoder = [first[1]] * first[0] + ["encoder"] * (encoders - first[0])
    decoder = [first[2]] * first[0] + ["decoder"] * (decoders - first[0])
    return (
        Layer(kind="embedding", role=Role.EMBEDDING, stack="encoder"),
        *runs(encoder, stack="encoder"),
        Layer(kind="encoder_norm", role=Role.HEAD, stack="encoder"),
        Layer(kind="embedding", role=Role.EMBEDDING, stack="decoder"),
        *runs(decoder, stack="decoder"),
        Layer(kind="head", role=Role.HEAD, stack="decoder"),
    )


def _kinds(shapes: Shapes, vocab: int, tied: bool) -> dict[str, LayerKind]:
    """Kinds of both stacks; the two token tables are one in every T5."""
    stream, hidden = shapes.stream, shapes.stream.hidden
    table = embedding(vocab, hidden, EMBEDDING_TIE, dropout=stream.dropout)
    built: dict[str, tuple[Operator, ...]] = {
        "embedding": (table,),
        "encoder_norm": (stream.normalise("encoder_norm", "x"),),
        "head": head(stream, vocab, EMBEDDING_TIE if tied else ""),
        "encoder": shapes.encoder_layer(first=False),
        "decoder": shapes.decoder_layer(first=False),
    }
    if not shapes.every_layer:
        built["encoder_first"] = shapes.encoder_layer(first=True)
        built["decoder_first"] = shapes.decoder_layer(first=True)
    return {
        name: layer_kind(name, operators, hidden, cut_after=name not in {"head", "encoder_norm"})
        for name, operators in built.items()
    }
