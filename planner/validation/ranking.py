"""How well predictions order layouts, how they follow a growing cluster, and whether their intervals hold."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Final

from planner.validation.predict import Outcome

MIN_LAYOUTS: Final = 3
"""Fewest layouts of one question that are worth ordering."""

NOISE: Final = 0.03
"""Two runs whose measured times differ by no more than this share cannot be told apart: one setting measured twice by
one source differs by 2.9 % in the median of 11 (profiles/published, bloom)."""


@dataclass(frozen=True, slots=True)
class Question:
    """A published comparison: rows of `source` whose model begins with `model`, split by the cells of `split`."""

    name: str
    source: str
    model: str
    split: tuple[str, ...]
    devices: str = ""

    def takes(self, outcome: Outcome) -> bool:
        """Whether a row belongs to it."""
        run = outcome.run
        devices = not self.devices or run.text("n_gpus") == self.devices
        return run.source == self.source and run.text("model").startswith(self.model) and devices


QUESTIONS: Final = (
    Question("BLOOM, 384 A100", "bloom", "bloomtune-h14336-l72", ("model",), "384"),
    Question("1.3B, 8 V100", "v100", "bs-gpt-1.3b", ("gpu",), "8"),
    Question("Llama-3-70B SFT, 32 H100", "bskill", "llama3-70b", (), "32"),
    Question("SimuMax, 8 B200", "simumax", "", ("model", "seq_len")),
    Question("InternEvo tp x zero1, A100", "intern", "", ("n_gpus",)),
    Question("recompute ablations, H100", "bskill", "moonlight", ()),
    Question("recompute ablations, H100", "bskill", "nemotron3-nano", ()),
)
"""Comparisons of layouts that their sources made; batches differ slightly, so that times are compared per sample."""


@dataclass(frozen=True, slots=True)
class Order:
    """One question's layouts: Kendall's tau (None where all tie), and the regret of the layout predicted fastest.

    `tau_apart` is over the pairs alone whose measured times differ by more than NOISE.
    """

    layouts: int
    tau: float | None
    regret: float
    tau_apart: float | None


def ranking(outcomes: Sequence[Outcome]) -> dict[str, object]:
    """Order of the layouts of one question (same source, model, GPUs and batch), and of the named comparisons."""
    orders = [o for rows in grouped(outcomes, _question).values() if (o := order_of(rows)) is not None]
    named = named_orders(outcomes)
    return {
        **_means(orders),
        "named": {
            name: {**_means(found), "layouts": sum(o.layouts for o in found)} for name, found in named.items()
        },
        "named_mean": _means([order for found in named.values() for order in [_joined(found)]]),
    }


def named_orders(outcomes: Sequence[Outcome]) -> dict[str, list[Order]]:
    """Orders of the named comparisons that the table has enough layouts of."""
    found: dict[str, list[Order]] = {}
    for question in QUESTIONS:
        rows = [outcome for outcome in outcomes if question.takes(outcome)]

        def cell(outcome: Outcome, columns: tuple[str, ...] = question.split) -> str:
            return "|".join(outcome.run.text(column) for column in columns)

        for part in grouped(rows, cell).values():
            order = order_of(part)
            if order is not None:
                found.setdefault(question.name, []).append(order)
    return found


def order_of(outcomes: Sequence[Outcome]) -> Order | None:
    """The order of one question's rows by seconds a sample; None for too few."""
    pairs = [
        (o.step_s / samples, o.run.step_s / samples)
        for o in outcomes
        if o.step_s and o.run.step_s and (samples := o.run.number("global_batch"))
    ]
    if len(pairs) < MIN_LAYOUTS:
        return None
    chosen = min(pairs)[1]
    fastest = min(measured for _, measured in pairs)
    return Order(len(pairs), kendall_tau(pairs), chosen / fastest - 1.0, kendall_tau(pairs, NOISE))


def kendall_tau(pairs: Sequence[tuple[float, float]], noise: float = 0.0) -> float | None:
    """Kendall's tau of (predicted, measured), ties left out; None where every pair ties.

    Pairs tie whose measured times differ by no more than `noise` of the shorter.
    """
    signs = [
        (first[0] - second[0]) * (first[1] - second[1])
        for index, first in enumerate(pairs)
        for second in pairs[index + 1 :]
        if abs(first[1] - second[1]) > noise * min(first[1], second[1])
    ]
    agree, differ = sum(sign > 0 for sign in signs), sum(sign < 0 for sign in signs)
    return (agree - differ) / (agree + differ) if agree + differ else None


@dataclass(frozen=True, slots=True)
class Scaling:
    """One layout on more and more devices: loss of speed per device from fewest to most, predicted and measured."""

    name: str
    fewest: int
    most: int
    predicted: float
    measured: float


def weak_scaling(outcomes: Iterable[Outcome]) -> tuple[Scaling, ...]:
    """Series of rows that differ in the number of devices and in the batch, which grows with it."""
    found = []
    for name, rows in grouped(outcomes, _series).items():
        timed = sorted((o for o in rows if o.step_s and o.run.step_s), key=lambda o: o.run.whole("n_gpus"))
        sizes = sorted({o.run.whole("n_gpus") for o in timed})
        if len(sizes) < MIN_LAYOUTS or len(sizes) != len(timed):
            continue
        first, last = timed[0], timed[-1]
        predicted = (last.step_s or 0.0) / (first.step_s or 1.0) - 1.0
        measured = (last.run.step_s or 0.0) / (first.run.step_s or 1.0) - 1.0
        found.append(Scaling(name, sizes[0], sizes[-1], predicted, measured))
    return tuple(found)


def interval_half_width(outcomes: Iterable[Outcome]) -> float | None:
    """Median half-width of the 90 % intervals over their predictions."""
    widths = [
        (o.prediction.step_s_high - o.prediction.step_s_low) / (2.0 * o.prediction.step_s)
        for o in outcomes
        if o.prediction and o.run.step_s
    ]
    return median(widths) if widths else None


def grouped(outcomes: Iterable[Outcome], key: Callable[[Outcome], str]) -> dict[str, list[Outcome]]:
    """Outcomes by a key, keys in order."""
    found: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        found.setdefault(key(outcome), []).append(outcome)
    return dict(sorted(found.items()))


def _means(orders: Sequence[Order]) -> Mapping[str, object]:
    return {
        "groups": len(orders),
        "kendall_tau": _mean(order.tau for order in orders),
        "kendall_tau_apart": _mean(order.tau_apart for order in orders),
        "regret": fmean(order.regret for order in orders) if orders else None,
    }


def _joined(orders: Sequence[Order]) -> Order:
    """One order for a comparison with several questions: their means."""
    return Order(
        sum(order.layouts for order in orders),
        _mean(order.tau for order in orders),
        fmean(order.regret for order in orders),
        _mean(order.tau_apart for order in orders),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _question(outcome: Outcome) -> str:
    columns = ("model", "gpu", "n_gpus", "seq_len", "global_batch", "precision", "framework")
    return " | ".join((outcome.run.source, *(outcome.run.text(column) for column in columns)))


def _series(outcome: Outcome) -> str:
    run = outcome.run
    columns = (
        "model",
        "gpu",
        "precision",
        "tp",
        "pp",
        "vpp",
        "cp",
        "ep",
        "micro_batch",
        "seq_len",
        "recompute",
    )
    per_device = run.whole("global_batch", 1) / run.whole("n_gpus", 1)
    cells = (run.source, *(run.text(column) for column in columns), run.text("zero_stage"), f"{per_device:g}")
    return " | ".join(cells)
