"""What is measured: one case gives one point of a profile."""

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

from cost_models.profiles.measured import Point

Work = Callable[[], object]
"""One call of what is timed."""


@dataclass(frozen=True, slots=True)
class Fresh:
    """A call that can be made once only (a backward pass that overwrites what it reads); `prepare` makes a new one,
    outside the timed seconds."""

    prepare: Callable[[], Work]

    def __call__(self) -> object:
        """Prepare and call."""
        return self.prepare()()


@dataclass(frozen=True, slots=True)
class Case:
    """One point to measure. `make` builds the tensors and returns the call that is timed; the tensors live as long as
    the call does. `weight` is the share of the step's predicted time that hangs on it, `expected_s` what a formula says
    that one call takes (0: nothing known). `clock`: another than the run's."""

    point: Point
    make: Callable[[], Work]
    weight: float = 0.0
    expected_s: float = 0.0
    clock: "Clock | None" = None

    @property
    def key(self) -> str:
        """What is measured, told apart from every other case."""
        return self.point.key


@dataclass(slots=True)
class Found:
    """Bursts of samples of one case so far, in seconds of a call."""

    bursts: list[tuple[float, ...]] = field(default_factory=list)
    failure: str = ""
    medians: list[float] = field(init=False)
    """Of every burst."""

    def __post_init__(self) -> None:
        self.medians = [median(burst) for burst in self.bursts]

    def add(self, burst: tuple[float, ...]) -> None:
        """One burst more."""
        self.bursts.append(burst)
        self.medians.append(median(burst))


class Clock(Protocol):
    """Times calls; a device's own events where it has them."""

    @property
    def name(self) -> str:
        """wall, processor or events."""

    def samples(self, work: Work, calls: int, repeats: int) -> tuple[float, ...]:
        """Seconds of a call, `repeats` times the mean over `calls` calls one after the other (one, if fresh)."""

    def now(self) -> float:
        """Seconds since some moment, for the budget."""


class Team(Protocol):
    """The processes that measure together; the first decides."""

    @property
    def size(self) -> int:
        """How many they are."""

    def agree(self, number: int) -> int:
        """The first process's number, on every process; nobody goes on before all have asked."""
