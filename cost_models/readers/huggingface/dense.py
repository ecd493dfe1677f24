"""What families of plain dense decoders share beyond common.py: sizes under several names, windows, rotation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from cost_models.operators.base import Operator
from cost_models.readers.blocks.attention import AttentionShape
from cost_models.readers.blocks.feed_forward import MlpShape
from cost_models.readers.blocks.parallel import dense_block
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import ATTENTION_TYPES, Decoder, Parts, assemble
from cost_models.readers.huggingface.config import Config, Scalar
from cost_models.specs.model import ModelSpec

FULL, SLIDING = "full", "sliding"


@dataclass(frozen=True, slots=True)
class SizeKeys:
    """Keys of a decoder whose key/value heads are as many as its heads, each with its other spellings."""

    hidden: tuple[str, ...] = ("n_embd", "hidden_size")
    layers: tuple[str, ...] = ("n_layer", "num_hidden_layers")
    heads: tuple[str, ...] = ("n_head", "num_attention_heads")
    positions: tuple[str, ...] = ("n_positions", "max_position_embeddings")


def read_multi_head(config: Config, name: str, keys: SizeKeys) -> Decoder:
    """Sizes of a multi-head decoder; the width must be a multiple of the heads."""
    for spellings in (keys.hidden, keys.layers, keys.heads, keys.positions):
        agreed(config, *spellings)
    hidden, heads = config.integer(*keys.hidden), config.count(*keys.heads)
    check_whole_heads(config, hidden, heads, keys.hidden[0])
    return Decoder(
        name=name,
        hidden=hidden,
        layers=config.count(*keys.layers),
        vocab=config.integer("vocab_size"),
        heads=heads,
        kv_heads=heads,
        max_seq_len=config.integer(*keys.positions) if keys.positions else 0,
        tied=config.flag("tie_word_embeddings"),
    )


def agreed(config: Config, *spellings: str) -> None:
    """Two spellings of one key must not say different things."""
    stated = [key for key in spellings if config.listed(key)]
    for other in stated[1:]:
        if config.raw(other) != config.raw(stated[0]):
            raise config.contradiction(
                other,
                f"{other} {str(config.raw(other))[:40]} is not {stated[0]} {str(config.raw(stated[0]))[:40]}; "
                "make the two agree",
            )


def check_whole_heads(config: Config, hidden: int, heads: int, key: str = "hidden_size") -> None:
    """Heads that share the width must divide it."""
    if hidden % heads:
        raise config.contradiction(
            key, f"{key} {hidden} is not a multiple of the {heads} attention heads; change one of them"
        )


def multi_head(
    config: Config, decoder: Decoder, dropout: str, **features: bool | int | str
) -> AttentionShape:
    """Attention whose heads divide the width; `dropout` names the key of its dropout."""
    return AttentionShape.model_validate(
        {
            "heads": decoder.heads,
            "kv_heads": decoder.kv_heads,
            "head_dim": decoder.hidden // decoder.heads,
            "dropout": config.number(dropout) > 0,
            **features,
        }
    )


def inner_width(config: Config, key: str, hidden: int) -> int:
    """Feed-forward width: the key, or 4 x hidden where it is null or absent."""
    stated = config.optional_integer(key)
    if stated is None and not config.states(key):
        config.note(key, str(4 * hidden), changes_parameters=True)
    return stated or 4 * hidden


def rotated_features(config: Config, head_dim: int, *keys: str) -> int:
    """Features of a head that are rotated: a share of it, under rope_parameters or one of the keys."""
    share: Scalar = config.flat("rope_parameters").get("rope_parameters.partial_rotary_factor")
    if share is None:
        named = [key for key in keys if config.listed(key)]
        share = config.number(named[0] if named else keys[0])
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share <= 1:
        raise config.contradiction(
            keys[0], f"{keys[0]} is {str(share)[:40]}; give a number above 0 and at most 1"
        )
    return max(1, int(head_dim * share))


def rope_of(config: Config, key: str = "rope_theta") -> dict[str, Scalar]:
    """Rotary settings under either spelling; `key` is the family's own name of theta."""
    found = config.flat("rope_scaling", "rope_parameters")
    if not any(each.endswith("rope_theta") for each in found):
        found["rope_theta"] = config.number(key)
    return found


def attention_order(config: Config, layers: int, is_sliding: Callable[[int], bool]) -> tuple[str, ...]:
    """`full` or `sliding` by layer: as listed in layer_types, else by the family's rule."""
    if config.listed("layer_types"):
        return config.texts("layer_types", layers, ATTENTION_TYPES)
    return tuple(SLIDING if is_sliding(layer) else FULL for layer in range(layers))


def every_nth_full(config: Config, layers: int, key: str) -> tuple[str, ...]:
    """`full` at every n-th layer and `sliding` between, with n under the key."""
    if config.listed("layer_types"):
        return attention_order(config, layers, lambda layer: False)
    pattern = config.count(key, f"_{key}")
    return attention_order(config, layers, lambda layer: bool((layer + 1) % pattern))


@dataclass(frozen=True, slots=True)
class Dense:
    """A decoder of dense blocks: its stream, one attention per kind in their order, one feed-forward."""

    stream: Stream
    attention: Mapping[str, AttentionShape]
    order: Sequence[str]
    mlp: MlpShape
    parallel_norms: int = 0
    """0: attention, then feed-forward; 1 or 2: side by side behind that many norms."""

    def model(
        self,
        config: Config,
        decoder: Decoder,
        semantics: Mapping[str, Scalar],
        first: Sequence[Operator] = (),
        last: Sequence[Operator] = (),
    ) -> ModelSpec:
        """The model of these blocks between an embedding and a head (`first` and `last` where special)."""
        soft_cap = semantics.get("logit_soft_cap") is not None
        kinds = {
            kind: dense_block(self.stream, self.attention[kind], self.mlp, self.parallel_norms)
            for kind in dict.fromkeys(self.order)
        }
        described: dict[str, Scalar] = {
            "norm": self.stream.norm,
            "activation": self.mlp.function,
            "parallel_residual": self.parallel_norms > 0,
            **semantics,
        }
        parts = Parts(
            kinds=kinds,
            order=self.order,
            semantics=described,
            soft_cap=soft_cap,
            first=tuple(first),
            last=tuple(last),
        )
        return assemble(config, decoder, self.stream, parts)


def uniform(
    decoder: Decoder, stream: Stream, attention: AttentionShape, mlp: MlpShape, parallel_norms: int = 0
) -> Dense:
    """Layers that are all alike."""
    return Dense(stream, {"dense": attention}, ("dense",) * decoder.layers, mlp, parallel_norms)


def mixed(
    stream: Stream, full: AttentionShape, sliding: AttentionShape, order: Sequence[str], mlp: MlpShape
) -> Dense:
    """Layers with a window and layers without."""
    return Dense(stream, {FULL: full, SLIDING: sliding}, order, mlp)


def window_of(config: Config, key: str = "sliding_window") -> int:
    """The window of every layer, 0 where it is null."""
    return config.optional_integer(key) or 0


def with_kv_heads(decoder: Decoder, kv_heads: int) -> Decoder:
    """The same sizes with another number of key/value heads."""
    return replace(decoder, kv_heads=kv_heads)
