"""The largest batch and the longest sequence that fit, by bisection on a verdict that is monotone under an assumption.

Batch: one micro-batch on every data-parallel rank, without gradient accumulation: mbs x dp sequences at once. (With
accumulation any multiple fits.) Every dp that divides the devices is asked; its largest mbs is found by bisection.

Sequence: the global batch stays; lengths are multiples of 1,024 tokens, so that every degree up to 512 divides them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from cost_models.errors import InvalidJob
from cost_models.specs.job import MAX_BATCH, MAX_SEQ_LEN
from cost_models.specs.strategy import divisors
from planner.answers import PlanResult
from planner.objectives.asking import Asking, Changes
from planner.objectives.proof import Point, Proof, with_proof
from planner.restrictions import read_restrictions

SEQUENCE_UNIT = 1024
MAX_MICRO_BATCH = 65_536

BATCH_ASSUMPTION = "at one layout, memory does not fall as the micro-batch grows"
SEQUENCE_ASSUMPTION = "what fits at a length fits at every shorter multiple of 1,024 tokens"

Verdict = Callable[[int], bool | None]
"""Whether a size fits; None where time ran out."""


@dataclass(frozen=True, slots=True)
class Edge:
    """Where a verdict turns from yes to no: the largest size that fits and the least that does not, None for none."""

    fits: int | None
    fails: int | None
    is_open: bool = False


def find_edge(sizes: Sequence[int], verdict: Verdict) -> Edge:
    """Gallop up from the least size, then bisect; the verdict is asked about twice log2 of the answer times."""
    low, high, stride = -1, len(sizes), 1  # sizes[low] fits, sizes[high] does not
    while high - low > 1:
        middle = min(low + stride, high - 1) if high == len(sizes) else (low + high) // 2
        found = verdict(sizes[middle])
        if found is None:
            return Edge(sizes[low] if low >= 0 else None, _at(sizes, high), is_open=True)
        low, high = (middle, high) if found else (low, middle)
        stride *= 2
    return Edge(sizes[low] if low >= 0 else None, _at(sizes, high))


def _at(sizes: Sequence[int], index: int) -> int | None:
    return sizes[index] if index < len(sizes) else None


@dataclass
class _Tried:
    """The sizes that were asked, and the last plan that was found: the largest that fits, not tuned yet."""

    asking: Asking
    points: list[Point] = field(default_factory=list)
    found: PlanResult | None = None

    def fits(self, changes: Changes, pins: Mapping[str, int]) -> bool | None:
        """Whether some layout fits, with proof either way; None where time ran out."""
        result = None if self.asking.is_late else self.asking.fits(changes, pins)
        verdict: bool | None = result is not None and result.best is not None
        if self.asking.is_late and not verdict and (result is None or result.status == "unknown"):
            verdict = None
        self.found = result if verdict else self.found
        self.points.append(Point({**changes, **pins}, _OUTCOMES[verdict]))
        return verdict


_OUTCOMES = {True: "fits", False: "does_not_fit", None: "open"}


@dataclass(frozen=True, slots=True)
class _Size:
    """The size that was found: which key of the job it is, what nothing exceeds, and what is pinned to hold it."""

    key: str
    value: int
    bound: int
    pins: Mapping[str, int]


def largest_batch(asking: Asking) -> PlanResult:
    """The fastest plan among those with the most sequences (samples) at once on all devices."""
    restrictions = read_restrictions(asking.search.pins, asking.search.bans)
    ways = [dp for dp in divisors(asking.situation.cluster.num_devices) if restrictions.takes("dp", dp)]
    allowed = [k for k in range(1, MAX_MICRO_BATCH + 1) if restrictions.takes("mbs", k)]
    tried = _Tried(asking)
    value, pins, bound = 0, {}, 0
    for dp in sorted(ways, reverse=True):
        sizes = [k for k in allowed if value < k * dp <= MAX_BATCH]
        edge = find_edge(sizes, partial(_holds, tried, dp))
        if edge.fits is not None:
            value, pins = edge.fits * dp, {"dp": dp, "mbs": edge.fits}
        bound = max(bound, _most(sizes, edge) * dp)
    return _largest(tried, _Size("global_batch", value, max(bound, value), pins))


def _holds(tried: _Tried, dp: int, size: int) -> bool | None:
    """Does any layout with this dp hold a micro-batch of so many sequences on each rank?"""
    return tried.fits({"global_batch": size * dp}, {"dp": dp, "mbs": size})


def longest_sequence(asking: Asking) -> PlanResult:
    """The fastest plan at the longest sequence that fits."""
    if asking.situation.job.image_size:
        raise InvalidJob(
            f"{asking.situation.model.name} is a vision model without a sequence length; use --objective batch",
            pointer="/search/objective",
        )
    tried = _Tried(asking)
    sizes = range(SEQUENCE_UNIT, MAX_SEQ_LEN + 1, SEQUENCE_UNIT)
    edge = find_edge(sizes, lambda size: tried.fits({"seq_len": size}, {}))
    return _largest(tried, _Size("seq_len", edge.fits or 0, _most(sizes, edge), {}))


def _most(sizes: Sequence[int], edge: Edge) -> int:
    """The largest size that is not proved to fail, 0 for none."""
    if edge.fails is None:
        return sizes[-1] if sizes else 0
    return sizes[sizes.index(edge.fails) - 1] if edge.fails != sizes[0] else 0


def _largest(tried: _Tried, size: _Size) -> PlanResult:
    asking, is_batch = tried.asking, size.key == "global_batch"
    proof = Proof(
        objective=asking.search.objective,
        unit="sequences at once" if is_batch else "tokens of a sequence",
        sense="most",
        value=size.value or None,
        bound=size.bound,
        points=tuple(tried.points),
        space={"sizes": "mbs x dp for every dp" if is_batch else f"multiples of {SEQUENCE_UNIT}"},
        assumption=BATCH_ASSUMPTION if is_batch else SEQUENCE_ASSUMPTION,
    )
    if not size.value or tried.found is None:
        return with_proof(asking.as_asked({size.key: 1 if is_batch else SEQUENCE_UNIT}), proof, asking, {})
    changes = {size.key: size.value}
    tuned = asking.fastest(changes, size.pins)
    result = tuned if tuned is not None and tuned.best is not None else tried.found
    return with_proof(result, proof, asking, changes)
