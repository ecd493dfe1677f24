"""Typed access to Megatron-LM arguments, which remembers what was asked for and what was assumed."""

import ast
from collections.abc import Callable
from typing import Final

from cost_models.errors import BadInput
from cost_models.suggest import with_hint
from planner.formats.megatron.known import IGNORED, KNOWN, REFUSED
from planner.formats.megatron.tokens import Raw

MOST_LAYERS: Final = 10_000
"""Far more than any model has."""


class Arguments:
    """Arguments of one run; every reader asks by the flag's name without dashes."""

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self._assumed: dict[str, str] = {}
        for name, value in raw.items():
            if name in REFUSED and value not in ("false", "0"):
                raise BadInput(f"--{name} {value:.60}: {REFUSED[name]}", pointer=f"/{name}")

    @property
    def assumed(self) -> tuple[str, ...]:
        """Defaults that the answer rests on, as `name=value`."""
        return tuple(f"{name}={value}" for name, value in self._assumed.items())

    @property
    def ignored(self) -> tuple[str, ...]:
        """Arguments that change neither memory nor time here."""
        return tuple(sorted(name for name in self._raw if name in IGNORED))

    @property
    def unknown(self) -> tuple[str, ...]:
        """Arguments that this reader does not know."""
        return tuple(sorted(name for name in self._raw if name not in KNOWN and name not in IGNORED))

    def unknown_hints(self) -> tuple[str, ...]:
        """The unknown arguments, each with the known one that it may be."""
        return tuple(with_hint(name, sorted(KNOWN), f"--{name}") for name in self.unknown)

    def has(self, name: str) -> bool:
        """Whether the argument is given."""
        return name in self._raw

    def flag(self, name: str) -> bool:
        """Whether a switch is on."""
        return self._raw.get(name, "false").lower() not in ("false", "0")

    def text(self, name: str, default: str = "") -> str:
        """The argument's words, or the framework's default."""
        return self._raw.get(name, default)

    def whole(self, name: str, default: int | None = None, low: int = 1) -> int:
        """A whole number; raises BadInput naming the argument where it is none, too small or missing."""
        return int(self._number(name, default, low, int, "a whole number"))

    def number(self, name: str, default: float | None = None) -> float:
        """A number from 0 up."""
        return float(self._number(name, default, 0, float, "a number"))

    def _number(
        self, name: str, default: float | None, low: float, kind: Callable[[str], float], what: str
    ) -> float:
        text = self._raw.get(name)
        if text is None:
            if default is None:
                raise BadInput(f"--{name} is missing; give {what}", pointer=f"/{name}")
            return default
        try:
            value = kind(text.replace("_", ""))
        except ValueError:
            if text.startswith("$"):
                raise BadInput(
                    f"--{name} {text:.60} is a variable that the file does not set; write {what}",
                    pointer=f"/{name}",
                ) from None
            raise BadInput(f"--{name} {text:.60} is not {what}; correct it", pointer=f"/{name}") from None
        if not low <= value < float("inf"):
            raise BadInput(f"--{name} is {text:.60}; give {what} from {low} up", pointer=f"/{name}")
        return value

    def layers(self, name: str, default: int | None = None, low: int = 1) -> int:
        """A number of layers; raises BadInput also where it is more than any model has."""
        found = self.whole(name, default, low)
        if found > MOST_LAYERS:
            raise BadInput(f"--{name} is {found:,}; give at most {MOST_LAYERS:,} layers", pointer=f"/{name}")
        return found

    def one_of(self, name: str, known: tuple[str, ...], default: str = "") -> str:
        """One of the words that the framework's parser takes; raises BadInput naming them."""
        text = self._raw.get(name, default)
        if text not in known and text != default:
            raise BadInput(f"--{name} {text:.40} is not known; use {', '.join(known)}", pointer=f"/{name}")
        return text

    def assume(self, name: str, value: object) -> None:
        """Note a default that the answer rests on."""
        self._assumed[name] = str(value)


def layer_pattern(text: str, layers: int, name: str) -> tuple[bool, ...]:
    """Which layers a frequency chooses: `3` every third (from the first one), or `([0]*3+[1]*58)` one by one.

    Raises BadInput where the pattern is no such thing or has another number of layers.
    """
    if text.isdigit() and int(text) > 0:
        return tuple(index % int(text) == 0 for index in range(layers))
    try:
        chosen = _listed(ast.parse(text.strip()[:4000], mode="eval").body, layers + 1)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise BadInput(
            f"--{name} {text:.60} is not known; write a number or ([0]*3+[1]*{max(layers - 3, 1)})"
        ) from None
    if len(chosen) != layers:
        raise BadInput(f"--{name} names {len(chosen)} layers, the model has {layers}; make them equal")
    return tuple(chosen)


def _listed(node: ast.expr, most: int) -> list[bool]:
    """Zeros and ones of lists, sums and multiples of lists, cut after `most`; ValueError for anything else."""
    if isinstance(node, ast.List):
        values = [each.value for each in node.elts if isinstance(each, ast.Constant)]
        if len(values) == len(node.elts) and all(type(value) is int and value in (0, 1) for value in values):
            return [value == 1 for value in values]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_listed(node.left, most), *_listed(node.right, most)]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        times = node.right.value if isinstance(node.right, ast.Constant) else None
        if type(times) is int:
            return _listed(node.left, most) * min(max(times, 0), most)
    raise ValueError("no list of zeros and ones")
