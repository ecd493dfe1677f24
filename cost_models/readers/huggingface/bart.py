"""BART, mBART, PLBart, Pegasus, Marian, Blenderbot, M2M-100 and NLLB: two stacks of biased post- or pre-norm layers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cost_models.operators import CrossEntropy, Embedding, IdleWeights, LmHead
from cost_models.operators.base import Operator
from cost_models.operators.embedding import EMBEDDING_TIE
from cost_models.readers.blocks.attention import AttentionShape, attention_sublayer
from cost_models.readers.blocks.cross_attention import cross_attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, feed_forward_sublayer
from cost_models.readers.blocks.layers import layer_kind, runs
from cost_models.readers.blocks.stream import Stream, chain
from cost_models.readers.huggingface.bart_families import DEFAULTS, FAMILIES, NORM_EPS, Family
from cost_models.readers.huggingface.config import Config
from cost_models.readers.huggingface.encoder import check_heads
from cost_models.specs.model import Layer, LayerKind, ModelSpec, Role, Stack


@dataclass(frozen=True, slots=True)
class Side:
    """One stack: its name, sizes and whether its queries look ahead."""

    name: str
    layers: int
    heads: int
    width: int
    vocab: int

    @property
    def causal(self) -> bool:
        """A decoder sees the past only."""
        return self.name == "decoder"


@dataclass(frozen=True, slots=True)
class Pair:
    """Both stacks and what they share. `alone`: a decoder without an encoder, whose cross-attention never runs."""

    config: Config
    family: Family
    stream: Stream
    encoder: Side
    decoder: Side
    tied: bool
    shared: bool
    alone: bool

    def block(self, side: Side, first: bool) -> tuple[Operator, ...]:
        """Self-attention, in a decoder cross-attention, feed-forward; biases everywhere."""
        attention = AttentionShape(
            heads=side.heads,
            head_dim=self.stream.hidden // side.heads,
            qkv_bias=True,
            out_bias=True,
            fp32_softmax=False,
            rope=False,
            causal=side.causal,
            dropout=self.config.number("attention_dropout") > 0,
        )
        mlp = MlpShape(
            width=side.width, gated=False, function=self.config.text("activation_function"), bias=True
        )
        own = attention_sublayer(self.stream, attention)
        feed = feed_forward_sublayer(self.stream, mlp)
        if not side.causal:
            return chain(own, feed)
        cross = cross_attention_sublayer(self.stream, attention, first)
        if not self.alone:
            return chain(own, cross, feed)
        idle = sum(group.elements for operator in chain(cross) for group in operator.parameters())
        return (*chain(own, feed), IdleWeights(name="cross_idle", elements=idle))

    def embedding(self, side: Side) -> tuple[Operator, ...]:
        """Token and position tables of a stack, a norm over them where the family has one."""
        rows = self.family.position_rows
        positions = 0 if rows is None else self.config.integer("max_position_embeddings") + rows
        tie = EMBEDDING_TIE if self.tied and (self.shared or side.causal) else ""
        found: list[Operator] = [
            Embedding(
                name="embedding",
                vocab_size=side.vocab,
                width=self.stream.hidden,
                positions=positions,
                tie=tie,
                dropout=self.stream.dropout,
            )
        ]
        if self.family.embedding_norm:
            found.append(self.stream.normalise("embedding_norm", "embedding"))
        if self.shared and not self.tied and not self.alone and not side.causal:
            found.append(IdleWeights(name="shared_idle", elements=side.vocab * self.stream.hidden))
        return tuple(found)

    def head(self) -> tuple[Operator, ...]:
        """Final norm where norms stand before, the matrix, the loss."""
        vocab, hidden = self.decoder.vocab, self.stream.hidden
        norms = (self.stream.normalise("final_norm", "x"),) if self.family.placement_pre else ()
        source = "final_norm" if norms else "x"
        tie = EMBEDDING_TIE if self.tied else ""
        return (
            *norms,
            LmHead(name="logits", inputs=(source,), vocab_size=vocab, width=hidden, tie=tie),
            CrossEntropy(name="loss", inputs=("logits",), vocab_size=vocab),
        )

    def kinds(self) -> dict[str, LayerKind]:
        """Every kind of both stacks; a decoder's first layer keeps the encoder's output for all."""
        built = {
            "decoder_embedding": self.embedding(self.decoder),
            "decoder": self.block(self.decoder, first=False),
            "head": self.head(),
        }
        if not self.alone:
            built["decoder_first"] = self.block(self.decoder, first=True)
            built["encoder_embedding"] = self.embedding(self.encoder)
            built["encoder"] = self.block(self.encoder, first=True)
            if self.family.placement_pre:
                built["encoder_norm"] = (self.stream.normalise("encoder_norm", "x"),)
        ends = {"head", "encoder_norm"}
        hidden = self.stream.hidden
        return {key: layer_kind(key, each, hidden, cut_after=key not in ends) for key, each in built.items()}

    def layers(self) -> tuple[Layer, ...]:
        """Encoder, then decoder, each behind its embedding."""
        decoders = self.decoder.layers
        decoder_embedding = Layer(kind="decoder_embedding", role=Role.EMBEDDING, stack="decoder")
        head = Layer(kind="head", role=Role.HEAD, stack="decoder")
        if self.alone:
            return (decoder_embedding, *runs(("decoder",) * decoders, stack="decoder"), head)
        norm = (
            (Layer(kind="encoder_norm", role=Role.HEAD, stack="encoder"),)
            if self.family.placement_pre
            else ()
        )
        return (
            Layer(kind="encoder_embedding", role=Role.EMBEDDING, stack="encoder"),
            *runs(("encoder",) * self.encoder.layers, stack="encoder"),
            *norm,
            decoder_embedding,
            *runs(("decoder_first", *("decoder",) * (decoders - 1)), stack="decoder"),
            head,
        )


def reader(family: str) -> Callable[[Mapping[str, object], str], ModelSpec]:
    """The reader of one of the families."""
    return lambda raw, name: _read(Config(raw, DEFAULTS[family], family), name, raw)


def _read(config: Config, name: str, raw: Mapping[str, object]) -> ModelSpec:
    pair = _pair(config, _is_alone(config, raw))
    kinds, layers = pair.kinds(), pair.layers()
    used = {layer.kind for layer in layers}
    stacks = (
        Stack(name="encoder", length="seq_len"),
        Stack(name="decoder", length="decoder_seq_len", reads=("encoder",)),
    )
    return ModelSpec(
        name=name,
        family=config.family,
        layers=layers,
        kinds={key: kind for key, kind in kinds.items() if key in used},
        stacks=(Stack(name="decoder"),) if pair.alone else stacks,
        vocab_size=pair.decoder.vocab,
        hidden_size=pair.stream.hidden,
        num_attention_heads=pair.decoder.heads,
        num_kv_heads=pair.decoder.heads,
        max_seq_len=config.integer("max_position_embeddings"),
        tied_embeddings=pair.tied,
        semantics={
            "norm": "layer",
            "norm_eps": NORM_EPS,
            "activation": config.text("activation_function"),
            "position": "learned" if pair.family.learned else "sinusoidal",
            "embedding_scaled": config.flag("scale_embedding"),
        },
        assumed=config.assumed,
        reader="huggingface",
    )


def _is_alone(config: Config, raw: Mapping[str, object]) -> bool:
    """A decoder alone, where the config says so: the class for causal language models, or a decoder only."""
    stated = raw.get("architectures")
    if isinstance(stated, list) and stated:
        return str(stated[0]).endswith("ForCausalLM")
    return raw.get("is_encoder_decoder") is False and config.flag("is_decoder")


def _pair(config: Config, alone: bool) -> Pair:
    hidden, family = config.integer("d_model", "hidden_size"), FAMILIES[config.family]
    vocab = config.integer("vocab_size")
    marian = config.family == "marian"
    other = (config.optional_integer("decoder_vocab_size") if marian else None) or vocab
    shared = not marian or config.flag("share_encoder_decoder_embeddings")
    if shared and other != vocab:
        raise config.contradiction(
            "decoder_vocab_size",
            f"decoder_vocab_size {other} is not vocab_size {vocab}, but the tables are shared; make the two agree",
        )
    return Pair(
        config=config,
        family=family,
        stream=Stream(
            hidden,
            norm="layer",
            placement="pre" if family.placement_pre else "post",
            dropout=config.number("dropout") > 0,
        ),
        encoder=_side(config, "encoder", hidden, vocab),
        decoder=_side(config, "decoder", hidden, other),
        tied=config.flag("tie_word_embeddings"),
        shared=shared,
        alone=alone,
    )


def _side(config: Config, name: str, hidden: int, vocab: int) -> Side:
    heads = config.count(f"{name}_attention_heads")
    check_heads(config, "d_model", hidden, heads, f"{name}_attention_heads")
    width = config.integer(f"{name}_ffn_dim")
    return Side(name=name, layers=config.count(f"{name}_layers"), heads=heads, width=width, vocab=vocab)


read_bart = reader("bart")
read_mbart = reader("mbart")
read_plbart = reader("plbart")
read_pegasus = reader("pegasus")
read_marian = reader("marian")
read_blenderbot_small = reader("blenderbot-small")
read_blenderbot = reader("blenderbot")
read_m2m_100 = reader("m2m_100")
