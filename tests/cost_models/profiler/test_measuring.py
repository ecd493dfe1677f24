"""The profiler's loop under a clock of the test's own: where the budget goes, what it states, what it survives."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest

from cost_models.profiler.case import Case, Found, Fresh, Work
from cost_models.profiler.measure import Effort, Progress, measure
from cost_models.profiler.statistics import UNKNOWN, agreement, half_width, interval, pooled_deviation
from cost_models.profiler.team import Alone
from cost_models.profiles.measured import Point


@dataclass
class FakeClock:
    """Time that only measuring takes; every case has its seconds and its noise from burst to burst."""

    seconds: dict[str, float]
    noise: dict[str, float] = field(default_factory=dict)
    luck: random.Random = field(default_factory=lambda: random.Random(1))
    time: float = 0.0
    asked: list[str] = field(default_factory=list)
    name: str = "fake"

    def samples(self, work: Work, calls: int, repeats: int) -> tuple[float, ...]:
        key = str(work())
        moment = self.luck.gauss(1.0, self.noise.get(key, 0.0)) if repeats > 1 else 1.0
        found = tuple(self.seconds[key] * max(moment, 0.1) for _ in range(repeats))
        self.time += sum(found) * calls
        if repeats > 1:
            self.asked.append(key)
        return found

    def now(self) -> float:
        return self.time


def case(name: str, weight: float = 0.0, make: Callable[[], Work] | None = None) -> Case:
    point = Point(kind="kernel", name=name, features={"bytes": 1.0})
    return Case(point, make or (lambda: lambda: name), weight)


def run(cases: Sequence[Case], clock: FakeClock, budget_s: float, tolerance: float = 0.05) -> Progress:
    return measure(Progress(cases), clock, Alone(), Effort(budget_s, tolerance))


def test_every_case_is_measured_twice_heaviest_first_then_the_widest():
    clock = FakeClock({"a": 0.01, "b": 0.01, "c": 0.01}, {"b": 0.3, "c": 0.3})
    progress = run([case("a", 0.1), case("b", 0.7), case("c", 0.2)], clock, 1.5, 0.02)
    assert clock.asked[:6] == ["b", "c", "a", "b", "c", "a"]
    bursts = {key.split()[1]: len(found.bursts) for key, found in progress.found.items()}
    assert bursts["b"] > bursts["c"] >= bursts["a"] == 2


def test_one_case_of_every_curve_comes_first():
    sizes = [Point(kind="kernel", name="gemm", features={"bytes": float(n)}) for n in (1, 2, 3)]
    heavy = [Case(point, lambda: lambda: "a", 1.0) for point in sizes]
    clock = FakeClock({"a": 0.01, "norm": 0.01})
    progress = run([*heavy, case("norm", 0.001)], clock, 0.15)
    assert clock.asked[:2] == ["a", "norm"]
    assert {point.name for point in progress.points()} == {"gemm", "norm"}


def test_quiet_cases_end_it_before_the_budget():
    clock = FakeClock({"a": 0.01, "b": 0.02})
    progress = run([case("a"), case("b")], clock, 1000.0)
    assert progress.complete
    assert progress.spent_s < 2.0
    for point in progress.points():
        assert point.seconds == pytest.approx(clock.seconds[point.name])
        assert point.low_s < point.seconds < point.high_s
        assert point.half_width <= 0.05


def test_a_budget_that_ends_leaves_what_was_reached():
    cases = [case(f"c{i}", 1.0 - i / 100) for i in range(50)]
    clock = FakeClock({f"c{i}": 0.02 for i in range(50)}, {f"c{i}": 0.1 for i in range(50)})
    progress = run(cases, clock, 1.0)
    assert not progress.complete
    assert 0 < len(progress.points()) < 50
    assert progress.spent_s < 1.3
    # heaviest first, so the reached ones are the first ones
    assert [point.name for point in progress.points()] == [f"c{i}" for i in range(len(progress.points()))]


def test_a_resumed_profile_goes_on_where_it_stopped():
    cases = [case(f"c{i}") for i in range(20)]
    clock = FakeClock({f"c{i}": 0.02 for i in range(20)})
    first = run(cases, clock, 0.8)
    reached = {key: len(found.bursts) for key, found in first.found.items()}
    again = measure(Progress(cases, dict(first.found), first.spent_s), clock, Alone(), Effort(100.0))
    assert again.complete
    assert all(len(again.found[key].bursts) >= bursts for key, bursts in reached.items())
    assert sum(name in {key.split()[1] for key in reached} for name in clock.asked) <= 2 * len(reached) + 1


def test_a_case_that_cannot_run_says_why_and_stops_nothing():
    def broken() -> Work:
        raise RuntimeError("no such kernel\non this device")

    def once_only() -> Work:
        calls: list[int] = []

        def work() -> object:
            calls.append(1)
            if len(calls) > 1:
                raise RuntimeError("the graph is gone")
            return "once"

        return work

    clock = FakeClock({"a": 0.01, "fresh": 0.01})
    fresh = case("fresh", make=lambda: Fresh(lambda: lambda: "fresh"))
    progress = run([case("bad", 1.0, broken), case("once", 0.5, once_only), case("a"), fresh], clock, 10.0)
    assert {point.name for point in progress.points()} == {"a", "fresh"}
    assert sorted(progress.failures.values()) == [
        "RuntimeError: no such kernel on this device",
        "RuntimeError: the graph is gone",
    ]


def test_a_case_too_long_for_the_budget_is_not_begun():
    long = Case(Point(kind="kernel", name="long", features={"bytes": 1.0}), lambda: lambda: "long", 1.0, 60.0)
    progress = run([long, case("a")], FakeClock({"a": 0.01}), 10.0)
    assert {point.name for point in progress.points()} == {"a"}


def test_a_second_profile_agrees_within_the_stated_interval():
    # 200 cases with 5 % from burst to burst: 90 % of the second medians should lie inside, 85 % at least must
    names = [f"c{i}" for i in range(200)]
    cases = [case(name) for name in names]
    noise = dict.fromkeys(names, 0.05)
    seconds = dict.fromkeys(names, 0.01)
    runs = [run(cases, FakeClock(seconds, noise, random.Random(seed)), 15.0, 0.01) for seed in (1, 2)]
    first, second = ({p.key: (p.seconds, p.low_s, p.high_s) for p in found.points()} for found in runs)
    assert len(first) == 200
    assert agreement(first, {key: values[0] for key, values in second.items()}) >= 0.85


def test_intervals_by_hand():
    # medians of two bursts 1.0 and 1.2, their median 1.1: sum of squares 2 (0.1 / 1.1)^2 = 0.016529, pooled 0.05:
    # s^2 = (2 x 0.0025 + 0.016529) / 3 = 0.007176, half = 1.645 x 0.08471 x sqrt(2 / 2) = 0.13934
    found = Found([(1.0, 1.0, 9.0), (1.2, 1.2, 1.2)])
    bursts = found.medians
    assert bursts == [1.0, 1.2]
    assert half_width(bursts, 0.05) == pytest.approx(0.13934, rel=1e-3)
    centre, low, high = interval(bursts, 0.05)
    assert (centre, high - centre) == (pytest.approx(1.1), pytest.approx(centre - low))
    assert pooled_deviation([[1.0]]) == UNKNOWN
    assert pooled_deviation([bursts]) == pytest.approx(0.016529**0.5, rel=1e-3)
    # of three bursts and more, the median's variance is pi / 2 of a mean's: 1.645 x 0.05 x sqrt(pi / 4)
    assert half_width([1.0] * 4, 0.05) == pytest.approx(
        1.645 * 0.05 * (2 / 5) ** 0.5 * (3.14159 / 4) ** 0.5, rel=1e-3
    )
