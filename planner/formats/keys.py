"""Typed access to nested settings (JSON, YAML) that remembers which keys were asked for, so that the rest is listed."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from cost_models.errors import BadInput
from cost_models.suggest import with_hint

AUTO: Final = "auto"


class Keys:
    """One mapping of settings; names are dotted from the top, as in `zero_optimization.stage`."""

    def __init__(self, values: Mapping[str, Any], path: str = "") -> None:
        self._values = values
        self._path = path
        self._asked: set[str] = set()
        self._inside: dict[str, Keys] = {}

    def has(self, key: str) -> bool:
        """Whether the key stands there with a value; `auto` and null are none."""
        self._asked.add(key)
        return self._values.get(key) not in (None, AUTO)

    def is_auto(self, key: str) -> bool:
        """Whether `auto` stands there."""
        self._asked.add(key)
        return self._values.get(key) == AUTO

    def inside(self, key: str) -> "Keys":
        """The mapping under a key; an absent one is empty. Raises BadInput where it is something else."""
        self._asked.add(key)
        if key not in self._inside:
            value = self._values.get(key)
            if value in (None, AUTO):
                value = {}
            if not isinstance(value, Mapping):
                raise self.wrong(key, "a mapping of keys")
            self._inside[key] = Keys(value, f"{self._path}{key}.")
        return self._inside[key]

    def whole(self, key: str, default: int = 0, low: int = 0) -> int:
        """A whole number; numbers written as text or as 5e8 count."""
        value = self.number(key, float(default), min(low, 0))
        if value != int(value) or value < low:
            raise self.wrong(key, f"a whole number from {low} up")
        return int(value)

    def number(self, key: str, default: float = 0.0, low: int = 0) -> float:
        """A finite number, from 0 up unless a lower limit is given."""
        if not self.has(key):
            return default
        value = self._values[key]
        try:
            number = float(value) if not isinstance(value, bool) else float("nan")
        except (TypeError, ValueError):
            raise self.wrong(key, "a number") from None
        if not low <= number < 1e18:
            raise self.wrong(key, f"a number from {low} up")
        return number

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false; the words count too."""
        if not self.has(key):
            return default
        value = self._values[key]
        words = {"true": True, "false": False, "yes": True, "no": False, "1": True, "0": False}
        found = value if isinstance(value, bool) else words.get(str(value).lower())
        if found is None:
            raise self.wrong(key, "true or false")
        return found

    def text(self, key: str, default: str = "") -> str:
        """Words; raises BadInput where a mapping or list stands there."""
        if not self.has(key):
            return default
        value = self._values[key]
        if isinstance(value, Mapping | list):
            raise self.wrong(key, "one word")
        return str(value)

    def words(self, key: str) -> tuple[str, ...]:
        """A list of words, or one word; empty where nothing stands there."""
        if not self.has(key):
            return ()
        value = self._values[key]
        if isinstance(value, Mapping):
            raise self.wrong(key, "words")
        return tuple(str(each) for each in value) if isinstance(value, list) else (str(value),)

    def ignore(self, *keys: str) -> None:
        """Keys that change neither memory nor time here."""
        self._asked.update(keys)

    def ignored(self, *keys: str) -> tuple[str, ...]:
        """Those of the keys that stand there, dotted; they count as known."""
        self._asked.update(keys)
        return tuple(f"{self._path}{key}" for key in keys if key in self._values)

    def unknown_names(self) -> Iterator[str]:
        """Dotted keys that nobody asked for."""
        yield from (f"{self._path}{key}" for key in self._values if key not in self._asked)
        for keys in self._inside.values():
            yield from keys.unknown_names()

    def unknown(self) -> Iterator[str]:
        """Dotted keys that nobody asked for, each with the known one that it may be."""
        for key in self._values:
            if key not in self._asked:
                yield with_hint(str(key), sorted(self._asked), f"{self._path}{key}")
        for keys in self._inside.values():
            yield from keys.unknown()

    def wrong(self, key: str, wanted: str) -> BadInput:
        """What stands there is not what it has to be."""
        value = self._values.get(key)
        return BadInput(
            f"{self._path}{key} is {value!r:.60}; give {wanted}",
            pointer="/" + f"{self._path}{key}".replace(".", "/"),
        )
