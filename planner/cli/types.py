"""Values of options, each refused in one sentence that says what to write instead."""

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from cost_models.suggest import did_you_mean

if TYPE_CHECKING:
    ParamType = click.ParamType[Any]
else:  # generic only since click 8.3
    ParamType = click.ParamType

Param = click.Parameter | None
Ctx = click.Context | None
Scalar = bool | int | float | str

MAX_DIGITS: Final = 18
MAX_AMOUNT: Final = 1e30
_SCALES: Final = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}
_SECONDS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_WHOLE: Final = re.compile(r"[+-]?[0-9]+")
_NOT_FINITE: Final = {"nan", "inf", "+inf", "-inf", "infinity", "-infinity", "+infinity", "+nan", "-nan"}


class WholeNumber(ParamType):
    """A whole number between two limits, both included."""

    name = "integer"

    def __init__(self, minimum: int, maximum: int) -> None:
        self.minimum = minimum
        self.maximum = maximum

    def convert(self, value: Any, param: Param, ctx: Ctx) -> int:
        """The number; `1e3` and `8.0` are answered with how to write them."""
        if isinstance(value, int):
            return value
        text = str(value).strip()
        allowed = f"give a whole number from {self.minimum:,} to {self.maximum:,}"
        if not _WHOLE.fullmatch(text):
            self.fail(f"{text[:40]!r} is not a whole number; {_written_out(text) or allowed}", param, ctx)
        number = int(text) if len(text) <= MAX_DIGITS else None
        if number is None or not self.minimum <= number <= self.maximum:
            self.fail(f"{text[:40]} is out of range; {allowed}", param, ctx)
        return number


class WholeNumbers(ParamType):
    """Several whole numbers with commas between them."""

    name = "integers"

    def __init__(self, minimum: int, maximum: int) -> None:
        self.each = WholeNumber(minimum, maximum)

    def convert(self, value: Any, param: Param, ctx: Ctx) -> tuple[int, ...]:
        """The numbers, as they stand."""
        if isinstance(value, tuple):
            return value
        return tuple(self.each.convert(part, param, ctx) for part in str(value).split(","))


class Number(ParamType):
    """A finite number between two limits; with `percent`, `5%` means 0.05."""

    name = "number"

    def __init__(self, minimum: float, maximum: float, *, percent: bool = False) -> None:
        self.minimum = minimum
        self.maximum = maximum
        self.percent = percent

    def convert(self, value: Any, param: Param, ctx: Ctx) -> float:
        """The number."""
        if isinstance(value, int | float):
            return float(value)
        text = str(value).strip()
        is_percent = self.percent and text.endswith("%")
        try:
            number = float(text[:-1]) / 100 if is_percent else float(text)
        except ValueError:
            number = math.nan
        if not (math.isfinite(number) and self.minimum <= number <= self.maximum):
            example = " (or a percentage such as 5%)" if self.percent else ""
            allowed = f"give a number from {self.minimum:g} to {self.maximum:g}{example}"
            self.fail(f"{text[:40]!r} is not usable; {allowed}", param, ctx)
        return number


class Amount(ParamType):
    """A positive amount, as 1e12, 15T, 300B, 2.5M or 40K (decimal)."""

    name = "amount"

    def convert(self, value: Any, param: Param, ctx: Ctx) -> float:
        """The number."""
        if isinstance(value, int | float):
            return float(value)
        text = str(value).strip()
        factor = _SCALES.get(text[-1:].upper(), 1.0)
        number = _positive(text[:-1] if factor > 1.0 else text) * factor
        if not 0.0 < number <= MAX_AMOUNT:
            self.fail(f"{text[:40]!r} is no amount; write for example 1e12, 15T or 300B", param, ctx)
        return number


class Duration(ParamType):
    """A time with its unit: 30d, 12h, 90m, 600s; in seconds."""

    name = "duration"

    def convert(self, value: Any, param: Param, ctx: Ctx) -> float:
        """Seconds."""
        if isinstance(value, int | float):
            return float(value)
        text = str(value).strip().lower()
        number = _positive(text[:-1]) * _SECONDS.get(text[-1:], math.nan)
        if not 0.0 < number <= MAX_AMOUNT:
            self.fail(f"{text[:40]!r} is no time; write a unit, as in 30d, 12h, 90m or 600s", param, ctx)
        return number


class OneOf(ParamType):
    """One of a few words."""

    name = "choice"

    def __init__(self, choices: Sequence[str]) -> None:
        self.choices = tuple(choices)

    def get_metavar(self, param: click.Parameter, ctx: Ctx = None) -> str:
        """The choices, as help shows them."""
        return f"[{'|'.join(self.choices)}]"

    def convert(self, value: Any, param: Param, ctx: Ctx) -> str:
        """The word, whatever its case; the nearest known one is suggested."""
        text = str(value).strip().lower()
        if text not in self.choices:
            hint = did_you_mean(text, self.choices)
            self.fail(f"{text[:40]!r} is not known; {hint}use {', '.join(self.choices)}", param, ctx)
        return text


class KeyValue(ParamType):
    """`key=value`, the value read as true, false, a whole number, a number or a word."""

    name = "key=value"

    def __init__(self, example: str) -> None:
        self.example = example

    def convert(self, value: Any, param: Param, ctx: Ctx) -> tuple[str, Scalar]:
        """Key and typed value."""
        if isinstance(value, tuple):
            return value[0], value[1]
        key, equals, text = str(value).partition("=")
        key, text = key.strip(), text.strip()
        if not equals or not key or not text:
            self.fail(f"{str(value)[:60]!r} is not key=value; write for example {self.example}", param, ctx)
        try:
            return key, scalar(text)
        except ValueError as error:
            self.fail(f"{key}={text[:40]}: {error}", param, ctx)


def scalar(text: str) -> Scalar:
    """A value as written on the command line; raises ValueError for what is not finite or absurdly long."""
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    if lowered in _NOT_FINITE:
        raise ValueError("give a finite number")
    if _WHOLE.fullmatch(text):
        if len(text) > MAX_DIGITS:
            raise ValueError(f"give at most {MAX_DIGITS} digits")
        return int(text)
    try:
        # Python reads 1_0 and digits of other scripts as numbers; nobody means them.
        number = float(text) if text.isascii() and "_" not in text else None
    except ValueError:
        number = None
    if number is None:
        return text
    if not math.isfinite(number):
        raise ValueError("give a finite number")
    return number


def _positive(text: str) -> float:
    """A plain number; not a number where the text is none."""
    try:
        return float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return math.nan


def _written_out(text: str) -> str:
    """`write 1000` for `1e3`; empty where the text is no whole number in any notation."""
    try:
        number = float(text)
    except ValueError:
        scale = _SCALES.get(text[-1:].upper())
        if scale is None or not text[:-1].isdigit():
            return ""
        binary = f" or {int(text[:-1]) * 1024}" if scale == _SCALES["K"] else ""
        return f"write {int(text[:-1]) * int(scale)}{binary}"
    return (
        f"write {int(number)}" if math.isfinite(number) and number.is_integer() and abs(number) < 1e15 else ""
    )
