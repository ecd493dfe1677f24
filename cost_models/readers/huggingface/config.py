"""A Hugging Face config with types, limits and documented defaults; it notes every key that it assumes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cost_models.errors import InvalidModel
from cost_models.readers.blocks.stream import MAX_SIZE
from cost_models.readers.huggingface.spelled import allowed_texts, slip_of
from cost_models.specs.model import Assumed

Scalar = str | int | float | bool | None

MAX_LAYERS = 100_000
"""Largest number of layers, experts or heads that is read."""


@dataclass(frozen=True, slots=True)
class Default:
    """What the framework's configuration class takes when a key is absent."""

    value: Any
    changes_parameters: bool = True


def sizes(**values: Any) -> dict[str, Default]:
    """Defaults of keys that change the parameter count."""
    return {key: Default(value) for key, value in values.items()}


def options(**values: Any) -> dict[str, Default]:
    """Defaults of keys that leave the parameter count alone."""
    return {key: Default(value, changes_parameters=False) for key, value in values.items()}


class Config:
    """Typed access to a config; an absent key takes the family's default and is noted, a null does not."""

    def __init__(self, raw: Mapping[str, object], defaults: Mapping[str, Default], family: str) -> None:
        self._raw = raw
        self._defaults = defaults
        self._assumed: dict[str, Assumed] = {}
        self.family = family

    @property
    def assumed(self) -> tuple[Assumed, ...]:
        """Keys that were read but absent, in reading order."""
        return tuple(self._assumed.values())

    def note(self, key: str, value: str, changes_parameters: bool) -> None:
        """Record an assumption that is not a plain default."""
        self._assumed[key] = Assumed(key=key, value=value, changes_parameters=changes_parameters)

    def states(self, key: str) -> bool:
        """Whether the config holds the key, null included."""
        return key in self._raw

    def listed(self, key: str) -> bool:
        """Whether the config states the key with a value; its absence is then no assumption of its own."""
        return self._raw.get(key) is not None

    def raw(self, key: str, *aliases: str) -> object:
        """The value under the key or an alias of it, or the family's default, which is noted."""
        stated = [name for name in (key, *aliases) if name in self._raw]
        for name in stated[1:]:
            first, other = self._raw[stated[0]], self._raw[name]
            if first is not None and other is not None and first != other:
                raise InvalidModel(
                    f"{stated[0]} is {str(first)[:60]} and {name} is {str(other)[:60]}, two names of one thing; "
                    "drop one of them",
                    pointer=f"/{name}",
                )
        if stated:
            return self._raw[stated[0]]
        if key not in self._defaults:
            raise InvalidModel(f"the {self.family} config has no {key}; add it", pointer=f"/{key}")
        default = self._defaults[key]
        if key not in self._assumed:
            self._refuse_a_slip(key, default)
            text = "null" if default.value is None else str(default.value)
            self.note(key, text, default.changes_parameters)
        value: object = default.value
        return value

    def _refuse_a_slip(self, key: str, default: Default) -> None:
        """A size under a mistyped key would silently be the family's default."""
        own = [each for each in self._raw if each not in self._defaults] if default.changes_parameters else []
        slip = slip_of(key, own)
        if slip is not None:
            raise InvalidModel(
                f"the {self.family} config has {slip[:60]}, which nothing reads, and no {key}; correct the spelling",
                pointer=f"/{slip[:60]}",
                allowed=(key,),
            )

    def integer(self, key: str, *aliases: str, low: int = 1, high: int = MAX_SIZE) -> int:
        """A whole number between low and high."""
        return self._whole(key, self.raw(key, *aliases), low, high)

    def count(self, key: str, *aliases: str, low: int = 1) -> int:
        """A number of layers, heads or experts."""
        return self.integer(key, *aliases, low=low, high=MAX_LAYERS)

    def optional_integer(self, key: str, *aliases: str, low: int = 1) -> int | None:
        """A whole number, or None where the config (or the default) says null."""
        value = self.raw(key, *aliases)
        return None if value is None else self._whole(key, value, low, MAX_SIZE)

    def number(self, key: str, low: float = 0.0) -> float:
        """A finite number of at least `low`."""
        value = self.raw(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self._wrong(key, value, "a finite number")
        if value < low:
            raise self._wrong(key, value, f"a number of at least {low:g}")
        return float(value)

    def multiple(self, key: str, of: int) -> int:
        """The number under the key times `of`, cut to a whole size as the classes do."""
        factor = self.number(key)
        if not 1 <= factor * of <= MAX_SIZE:
            raise self._wrong(key, self.raw(key), f"a number of {1 / of:g} to {MAX_SIZE / of:g}")
        return int(factor * of)

    def flag(self, key: str) -> bool:
        """True or false."""
        value = self.raw(key)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def text(self, key: str, allowed: Sequence[str] = ()) -> str:
        """A text, one of `allowed` where given."""
        value, allowed = self.raw(key), allowed or allowed_texts(key)
        if not isinstance(value, str) or (allowed and value not in allowed):
            wanted = f"one of {', '.join(allowed)}" if allowed else "a text"
            raise self._wrong(key, value, wanted, tuple(allowed))
        return value

    def integers(self, key: str, low: int = 1) -> tuple[int, ...]:
        """A list of whole numbers."""
        value = self.raw(key)
        if not isinstance(value, list | tuple):
            raise self._wrong(key, value, "a list of whole numbers")
        return tuple(self._whole(f"{key}/{i}", each, low, MAX_SIZE) for i, each in enumerate(value))

    def texts(self, key: str, length: int, allowed: Mapping[str, str]) -> tuple[str, ...]:
        """A list of `length` texts, each translated by `allowed`."""
        value = self.raw(key)
        if not isinstance(value, list | tuple):
            raise self._wrong(key, value, "a list of texts")
        if len(value) != length:
            raise InvalidModel(
                f"{key} names {len(value)} layers but the model has {length}; make the two agree",
                pointer=f"/{key}",
            )
        for index, each in enumerate(value):
            if not isinstance(each, str) or each not in allowed:
                raise self._wrong(f"{key}/{index}", each, f"one of {', '.join(allowed)}", tuple(allowed))
        return tuple(allowed[each] for each in value)

    def flat(self, *keys: str) -> dict[str, Scalar]:
        """Scalars of the named objects, as `rope_scaling.factor`: needed to build, not to count."""
        found: dict[str, Scalar] = {}
        for key in keys:
            _flatten(key, self._raw.get(key), found)
        return found

    def contradiction(self, key: str, sentence: str) -> InvalidModel:
        """The error of sizes that exclude each other."""
        return InvalidModel(sentence, pointer=f"/{key}")

    def _whole(self, key: str, value: object, low: int, high: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._wrong(key, value, "a whole number")
        if not low <= value <= high:
            raise self._wrong(key, value, f"a whole number between {low} and {high}")
        return value

    def _wrong(self, key: str, value: object, wanted: str, allowed: tuple[str, ...] = ()) -> InvalidModel:
        shown = "null" if value is None else (repr(value) if isinstance(value, str) else str(value))[:60]
        name = key.replace("/", " entry ")
        return InvalidModel(f"{name} is {shown}; give {wanted}", pointer=f"/{key}", allowed=allowed)


def _flatten(prefix: str, value: object, into: dict[str, Scalar]) -> None:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            _flatten(f"{prefix}.{key}", inner, into)
    elif isinstance(value, str | int) or (isinstance(value, float) and math.isfinite(value)):
        into[prefix] = value
