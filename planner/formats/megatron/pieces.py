"""Pieces that all of Megatron-LM's models have: tables at their start, kinds of layers."""

from collections.abc import Mapping, Sequence
from typing import Final

from cost_models.operators import Embedding
from cost_models.operators.base import Operator
from cost_models.readers.blocks.layers import layer_kind
from cost_models.readers.blocks.stream import Stream
from cost_models.specs.model import LayerKind
from planner.formats.megatron.arguments import Arguments
from planner.formats.megatron.shapes import is_plain_dropout

BINARY_HEAD_CLASSES: Final = 2


def kinds_of(
    operators: Mapping[str, Sequence[Operator]], hidden: int, last: tuple[str, ...]
) -> dict[str, LayerKind]:
    """Layer kinds of their operators; no stage may end after the `last` ones."""
    return {
        kind: layer_kind(kind, each, hidden, cut_after=kind not in last) for kind, each in operators.items()
    }


def table(arguments: Arguments, stream: Stream, vocab: int, tie: str, types: bool) -> Embedding:
    """Tokens and learned positions (the default kind); BERT adds two token types where it has a binary head."""
    rotary = arguments.flag("use-rotary-position-embeddings") or arguments.flag("no-position-embedding")
    learned = not rotary and (
        arguments.text("position-embedding-type", "learned_absolute") == "learned_absolute"
    )
    return Embedding(
        name="embedding",
        vocab_size=vocab,
        width=stream.hidden,
        positions=arguments.whole("max-position-embeddings") if learned else 0,
        types=BINARY_HEAD_CLASSES if types and not arguments.flag("bert-no-binary-head") else 0,
        tie=tie,
        dropout=is_plain_dropout(arguments),
    )
