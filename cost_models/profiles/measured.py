"""Files of a measured profile: one folder a run of the profiler, `manifest.json` beside `points.jsonl`.

Every line of the points carries a checksum of itself and the manifest one of the whole file, so a line that was edited,
cut or copied from elsewhere is refused by its name and number. Numbers are SI.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, ValidationError

from cost_models.errors import BadInput
from cost_models.specs.base import Frozen
from cost_models.strict_json import parse_json

FORMAT: Final = 1
MANIFEST_FILE: Final = "manifest.json"
POINTS_FILE: Final = "points.jsonl"
CHECK: Final = "check"
CHECK_DIGITS: Final = 16
SHOWN_DIGITS: Final = 12
MAX_FILE_BYTES: Final = 64 * 1024**2

Kind = Literal["kernel", "collective", "layer", "fact"]


class Machine(Frozen):
    """What a profile was measured on. `driver_name` is the accelerator's, or the processor's model for a CPU."""

    driver_name: str = Field(min_length=1)
    processor: str
    cores: int = Field(ge=1)
    memory_bytes: float = Field(gt=0)
    load_before: float = Field(ge=0)
    """Processes that wanted to run before it began, over the cores: what else the machine did."""
    facts: dict[str, str] = Field(default_factory=dict)


class Manifest(Frozen):
    """What a profile is of, how it was made, and whether it ran to its end."""

    format: Literal[1] = 1
    device: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$")
    machine: Machine
    versions: dict[str, str]
    started: str
    budget_s: float = Field(gt=0)
    spent_s: float = Field(ge=0)
    complete: bool
    """False where the budget or the user ended it before every case was measured to its tolerance."""
    cases: int = Field(ge=0)
    """Cases that were asked for; `points.jsonl` holds those that were reached."""
    tolerance: float = Field(gt=0)
    """Half width of the interval, over its middle, at which a case is done."""
    clock: str
    points_sha256: str


class Point(Frozen):
    """One measured thing. `seconds` is the median over bursts of the median of a burst's samples; `low_s` and `high_s`
    are the 90 % interval within which a second profile's is expected. Outliers stay among the samples.

    kernel: `name` is its curve (gemm, attention, norm:rms, ...), `features` hold m, n, k, count, flops, bytes.
    collective: `name` is all_reduce and so on, `features` hold bytes, `processes` is the group. layer: a whole layer,
    with bytes in `features`. fact: one number in `features["value"]`.
    """

    kind: Kind
    name: str = Field(min_length=1)
    phase: str = ""
    precision: str = ""
    processes: int = Field(default=1, ge=1)
    features: dict[str, float] = Field(default_factory=dict)
    seconds: float = Field(default=0.0, ge=0)
    low_s: float = Field(default=0.0, ge=0)
    high_s: float = Field(default=0.0, ge=0)
    samples: tuple[tuple[float, ...], ...] = ()
    """Seconds of a call, by burst."""
    label: str = ""

    @property
    def key(self) -> str:
        """What is measured, told apart from every other point of a profile."""
        shape = " ".join(f"{name}={value:g}" for name, value in sorted(self.features.items()))
        parts = (self.kind, self.name, self.phase, self.precision, f"x{self.processes}", self.label)
        told = " ".join(part for part in parts if part)
        return told if self.kind in ("layer", "fact") else f"{told} {shape}"

    @property
    def half_width(self) -> float:
        """Half of the interval over its middle; 0 where nothing was timed."""
        return (self.high_s - self.low_s) / (self.high_s + self.low_s) if self.high_s > 0.0 else 0.0


@dataclass(frozen=True, slots=True)
class MeasuredProfile:
    """A checked profile and the folder that it was read from."""

    folder: Path
    manifest: Manifest
    points: tuple[Point, ...]

    @property
    def name(self) -> str:
        """<device>/<date-versions>."""
        return f"{self.manifest.device}/{self.folder.name}"

    @property
    def title(self) -> str:
        """Name and the first digits of its hash, as predictions state it."""
        return f"{self.name} {self.sha256[:SHOWN_DIGITS]}"

    @property
    def sha256(self) -> str:
        """Hash of the points."""
        return self.manifest.points_sha256

    def of(self, kind: Kind) -> tuple[Point, ...]:
        """Points of one kind."""
        return tuple(point for point in self.points if point.kind == kind)

    def fact(self, name: str) -> float | None:
        """The value of a fact, None where it was not reached."""
        found = [point.features["value"] for point in self.of("fact") if point.name == name]
        return found[0] if found else None


def read_profile(folder: Path) -> MeasuredProfile:
    """A profile, every line checked; raises BadInput naming file and line of what is wrong. Read again if changed."""
    try:
        changed = tuple((folder / name).stat().st_mtime_ns for name in (MANIFEST_FILE, POINTS_FILE))
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadInput(
            f"measured profile {folder} cannot be read ({reason}); it needs {MANIFEST_FILE} and {POINTS_FILE}"
        ) from None
    return _read(folder, changed)


@lru_cache(maxsize=16)
def _read(folder: Path, changed_ns: tuple[int, ...]) -> MeasuredProfile:
    manifest = read_manifest(folder)
    content = _content(folder / POINTS_FILE)
    points = tuple(_points(folder / POINTS_FILE, content))
    if hashlib.sha256(content).hexdigest() != manifest.points_sha256:
        raise BadInput(
            f"{folder / POINTS_FILE}: {len(points)} lines, not those that {MANIFEST_FILE} was written for; "
            "measure again, profiles are not edited by hand"
        )
    return MeasuredProfile(folder, manifest, points)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a profile; raises BadInput naming the key that is wrong."""
    path = folder / MANIFEST_FILE
    try:
        return Manifest.model_validate(parse_json(_content(path).decode("utf-8")))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"{path}: {where}: {first['msg']}; measure again") from None
    except ValueError as error:
        raise BadInput(f"{path} {error}; measure again") from None


def read_points(path: Path) -> tuple[Point, ...]:
    """All points of a file that is still being written: a torn last line is left out, any other fault refused."""
    if not path.exists():
        return ()
    content = _content(path)
    whole = content[: content.rfind(b"\n") + 1]
    return tuple(_points(path, whole))


def point_line(point: Point) -> str:
    """The line of a point, with its checksum."""
    values = point.model_dump(mode="json", exclude_defaults=True)
    return json.dumps({**values, CHECK: _check(values)}, sort_keys=True, allow_nan=False) + "\n"


def _content(path: Path) -> bytes:
    if path.stat().st_size > MAX_FILE_BYTES:
        raise BadInput(f"{path} exceeds {MAX_FILE_BYTES:,} bytes; measure again with a smaller budget")
    return path.read_bytes()


def _points(path: Path, content: bytes) -> Iterator[Point]:
    seen: dict[str, int] = {}
    for number, line in enumerate(content.splitlines(), start=1):
        point = _point(path, number, line)
        if point.key in seen:
            raise BadInput(f"{path} line {number} measures what line {seen[point.key]} does; measure again")
        seen[point.key] = number
        yield point


def _point(path: Path, number: int, line: bytes) -> Point:
    try:
        values = parse_json(line.decode("utf-8"))
        if not isinstance(values, dict):
            raise ValueError("is no JSON object")
        stated = values.pop(CHECK, None)
        if stated != _check(values):
            raise ValueError(f"has the checksum {stated!r:.40}, its content {_check(values)!r}")
        return Point.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"{path} line {number}: {where}: {first['msg']}; measure again") from None
    except ValueError as error:  # bytes that are no text are one too
        what = " ".join(str(error).split())[:200]
        raise BadInput(
            f"{path} line {number} {what}; profiles are not edited by hand: remove the folder and measure again"
        ) from None


def _check(values: Mapping[str, Any]) -> str:
    """First digits of the SHA-256 of a line's values, keys sorted."""
    text = json.dumps(values, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:CHECK_DIGITS]
