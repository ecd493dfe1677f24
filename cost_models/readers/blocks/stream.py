"""The residual stream and what sub-layers share: norm, branch, residual; embedding and head at its ends."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from cost_models.operators import CrossEntropy, Embedding, Linear, LmHead, Norm, Residual, Scale
from cost_models.operators.base import Operator
from cost_models.operators.linear import Part

MAX_SIZE = 100_000_000
"""Largest width or vocabulary that is read; larger ones are typing errors."""

Size = Annotated[int, Field(ge=1, le=MAX_SIZE, strict=True)]
Width = Annotated[int, Field(ge=0, le=MAX_SIZE, strict=True)]

Builder = Callable[[str], tuple[Operator, ...]]
"""Takes the id of the tensor to read; the last operator's name is its output."""

HEAD_TIE = "lm_head"
"""Tie id of an untied output matrix that multi-token-prediction layers read too."""


@dataclass(frozen=True, slots=True)
class Stream:
    """The residual stream: its width, how it is normalised and whether branches drop out.

    Norms stand before a branch (`pre`), after its addition (`post`), before it and after it (`sandwich`), or
    after it only, before its addition (`inner`, OLMo 2).
    """

    hidden: int
    norm: Literal["rms", "layer"] = "rms"
    placement: Literal["pre", "post", "sandwich", "inner"] = "pre"
    dropout: bool = False
    norm_weight: bool = True
    norm_bias: bool = True
    """Whether a LayerNorm has a bias; an RMSNorm has none."""
    norm_offset: bool = False
    """RMSNorm's weight counts from one (Gemma 1 to 3)."""

    def normalise(self, name: str, source: str) -> Norm:
        """A normalisation of the stream; LayerNorm has a bias unless the stream says no, RMSNorm has none."""
        return Norm(
            name=name,
            inputs=(source,),
            kind=self.norm,
            width=self.hidden,
            weight=self.norm_weight,
            bias=self.norm == "layer" and self.norm_bias,
            offset=self.norm_offset,
        )


@dataclass(frozen=True, slots=True)
class Branch:
    """Operators of a sub-layer between its norm and its residual, and the tensors the residual adds."""

    operators: tuple[Operator, ...]
    outputs: tuple[str, ...]


def sublayer(stream: Stream, name: str, source: str, branch: Callable[[str], Branch]) -> tuple[Operator, ...]:
    """Norm, branch and residual in the stream's order; the last operator's name is the sub-layer's output."""
    found: list[Operator] = []
    if stream.placement in ("pre", "sandwich"):
        found.append(stream.normalise(f"{name}_norm", source))
    inner = branch(found[-1].name if found else source)
    found += inner.operators
    outputs = inner.outputs
    if stream.placement in ("sandwich", "inner"):
        found.append(stream.normalise(f"{name}_post_norm", outputs[0]))
        outputs = (found[-1].name,)
    residual = f"{name}_residual"
    found.append(
        Residual(name=residual, inputs=(source, *outputs), width=stream.hidden, dropout=stream.dropout)
    )
    if stream.placement == "post":
        found.append(stream.normalise(f"{name}_norm", residual))
    return tuple(found)


def chain(*builders: Builder, source: str = "x") -> tuple[Operator, ...]:
    """Sub-layers one after the other, each reading the last operator of the one before."""
    found: tuple[Operator, ...] = ()
    for build in builders:
        found += build(found[-1].name if found else source)
    return found


def column(name: str, source: str, in_features: int, features: int, bias: bool = False) -> Linear:
    """A column-parallel linear of one part."""
    part = Part(name="weight", features=features)
    return Linear(name=name, inputs=(source,), in_features=in_features, parts=(part,), bias=bias)


def row(name: str, source: str, in_features: int, features: int, bias: bool = False) -> Linear:
    """A row-parallel linear."""
    part = Part(name="weight", features=features)
    return Linear(name=name, inputs=(source,), in_features=in_features, parts=(part,), split="row", bias=bias)


def replicated(name: str, source: str, in_features: int, features: int, bias: bool = False) -> Linear:
    """A linear with a full weight on every tensor-parallel rank."""
    part = Part(name="weight", features=features)
    return Linear(
        name=name, inputs=(source,), in_features=in_features, parts=(part,), split="replicated", bias=bias
    )


def renamed(operators: Sequence[Operator], suffix: str, source: str) -> tuple[Operator, ...]:
    """The same operators under other names, so that a layer can hold them twice; `source` keeps its name."""
    return tuple(
        each.model_copy(
            update={
                "name": each.name + suffix,
                "inputs": tuple(read if read == source else read + suffix for read in each.inputs),
            }
        )
        for each in operators
    )


def scalars(name: str, count: int) -> Scale:
    """So many learned numbers inside another operator: stored and updated, too few to cost time."""
    return Scale(name=name, width=1, weights=count)


def embedding(vocab_size: int, width: int, tie: str = "", dropout: bool = False) -> Embedding:
    """A token table without learned positions."""
    return Embedding(name="embedding", vocab_size=vocab_size, width=width, tie=tie, dropout=dropout)


def head(
    stream: Stream, vocab_size: int, tie: str = "", soft_cap: bool = False, bias: bool = False
) -> tuple[Operator, ...]:
    """Final norm, output matrix (with a bias where asked) and cross entropy."""
    matrix = LmHead(
        name="logits",
        inputs=("final_norm",),
        vocab_size=vocab_size,
        width=stream.hidden,
        tie=tie,
        bias=bias,
    )
    return (
        stream.normalise("final_norm", "x"),
        matrix,
        CrossEntropy(name="loss", inputs=("logits",), vocab_size=vocab_size, soft_cap=soft_cap),
    )
