"""How the parts of a model's parameters lie in the tensors of files, and what a family's names are made of."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

Layout = Literal[
    "plain",
    "transposed",
    "concat",
    "concat_transposed",
    "by_head",
    "by_key_head",
    "experts",
    "experts_in_turn",
    "expert",
]
"""How parts lie in the file: alone, (in, out), after each other by rows or columns, head by head, by the heads of keys,
after each other per expert, in turn per expert as (in, out), or each expert of a part in a tensor of its own."""

ALONE: Final = ("plain", "transposed", "expert")
"""Layouts of tensors that hold elements of one parameter."""

Spelling = tuple[str, Layout]
"""A name and the layout of what it names."""

EXPERT: Final = "{expert}"


@dataclass(frozen=True, slots=True)
class Variant:
    """Other names inside of blocks that have, or do not have, an operator, where the blocks are parallel if so said."""

    inside: Mapping[str, str]
    has: str = ""
    lacks: str = ""
    parallel: bool = False

    def applies(self, operators: Collection[str], *, parallel: bool) -> bool:
        """Whether a block's names are these."""
        is_there = not self.has or self.has in operators
        return is_there and self.lacks not in operators and (parallel or not self.parallel)


@dataclass(frozen=True, slots=True)
class Names:
    """Names of one family: before a block's own, inside blocks, outside them, which are not plain, other spellings."""

    block: str
    inside: Mapping[str, str]
    outside: Mapping[str, str]
    layouts: Mapping[str, Layout]
    also: Mapping[str, tuple[Spelling, ...]] = field(default_factory=dict)
    variants: tuple["Variant", ...] = ()

    @property
    def base(self) -> str:
        """What files of the bare model, without its head, leave out before every name."""
        return self.block.partition(".")[0] + "."
