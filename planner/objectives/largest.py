"""The largest batch and the longest sequence that fit, by bisection on a verdict that is monotone under an assumption.

Batch: one micro-batch on every data-parallel rank, without gradient accumulation: mbs x dp sequences at once. (With
accumulation any multiple fits.) Every dp that divides the devices is asked; its largest mbs is found by bisection.

Sequence: the global batch stays; lengths are multiples of 1,024 tokens, so that every degree up to 512 divides them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cost_models.errors import InvalidJob
from cost_models.specs.job import MAX_BATCH, MAX_SEQ_LEN
from cost_models.specs.strategy import divisors
from planner.objectives.asking import Asking, Changes
from planner.objectives.proof import Point, Proof, with_proof
from planner.plan import PlanResult
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


def largest_batch(asking: Asking) -> PlanResult:
    """The fastest plan among those with the most sequences (samples) at once on all devices."""
    restrictions = read_restrictions(asking.search.pins, asking.search.bans)
    ways = [dp for dp in divisors(asking.situation.cluster.num_devices) if restrictions.takes("dp", dp)]
    allowed = [k for k in range(1, MAX_MICRO_BATCH + 1) if restrictions.takes("mbs", k)]
    points: list[Point] = []
    value, held, bound = 0, (0, 0), 0
    for dp in sorted(ways, reverse=True):
        sizes = [k for k in allowed if value < k * dp <= MAX_BATCH]
        edge = find_edge(sizes, _BatchVerdict(asking, dp, points))
        if edge.fits is not None:
            value, held = edge.fits * dp, (edge.fits, dp)
        bound = max(bound, _most(sizes, edge) * dp)
    return _largest(asking, points, _Size("global_batch", value, max(bound, value), held))


@dataclass(frozen=True, slots=True)
class _BatchVerdict:
    """Does any layout with this dp hold a micro-batch of k sequences on each rank?"""

    asking: Asking
    dp: int
    points: list[Point]

    def __call__(self, size: int) -> bool | None:
        """The verdict; noted as a point."""
        changes = {"global_batch": size * self.dp}
        found = _fits(self.asking, changes, {"dp": self.dp, "mbs": size})
        self.points.append(Point({**changes, "dp": self.dp, "mbs": size}, _OUTCOMES[found]))
        return found


def longest_sequence(asking: Asking) -> PlanResult:
    """The fastest plan at the longest sequence that fits."""
    if asking.situation.job.image_size:
        raise InvalidJob(
            f"{asking.situation.model.name} is a vision model without a sequence length; use --objective batch",
            pointer="/search/objective",
        )
    points: list[Point] = []

    def verdict(size: int) -> bool | None:
        found = _fits(asking, {"seq_len": size}, {})
        points.append(Point({"seq_len": size}, _OUTCOMES[found]))
        return found

    sizes = range(SEQUENCE_UNIT, MAX_SEQ_LEN + 1, SEQUENCE_UNIT)
    edge = find_edge(sizes, verdict)
    return _largest(asking, points, _Size("seq_len", edge.fits or 0, _most(sizes, edge), (0, 0)))


@dataclass(frozen=True, slots=True)
class _Size:
    """The size that was found: which key of the job it is, the least that nothing exceeds, and its (mbs, dp)."""

    key: str
    value: int
    bound: int
    held: tuple[int, int]


_OUTCOMES = {True: "fits", False: "does_not_fit", None: "open"}


def _fits(asking: Asking, changes: Changes, pins: Mapping[str, int]) -> bool | None:
    """Whether some layout fits, with proof either way; None where time ran out."""
    if asking.is_late:
        return None
    result = asking.fits(changes, pins)
    if result is None:
        return False
    return None if result.status == "unknown" else result.best is not None


def _most(sizes: Sequence[int], edge: Edge) -> int:
    """The largest size that is not proved to fail, 0 for none."""
    if edge.fails is None:
        return sizes[-1] if sizes else 0
    return sizes[sizes.index(edge.fails) - 1] if edge.fails != sizes[0] else 0


def _largest(asking: Asking, points: list[Point], size: _Size) -> PlanResult:
    is_batch = size.key == "global_batch"
    proof = Proof(
        objective=asking.search.objective,
        unit="sequences at once" if is_batch else "tokens of a sequence",
        sense="most",
        value=size.value or None,
        bound=size.bound,
        points=tuple(points),
        space={"sizes": "mbs x dp for every dp" if is_batch else f"multiples of {SEQUENCE_UNIT}"},
        assumption=BATCH_ASSUMPTION if is_batch else SEQUENCE_ASSUMPTION,
    )
    if not size.value:
        return with_proof(asking.as_asked({size.key: 1 if is_batch else SEQUENCE_UNIT}), proof, asking, {})
    changes: dict[str, int | float] = {size.key: size.value}
    pins = {"mbs": size.held[0], "dp": size.held[1]} if is_batch else {}
    result = asking.fastest(changes, pins)
    if result is None or result.best is None:
        result = asking.fits(changes, pins)
    return with_proof(result or asking.as_asked(), proof, asking, changes)
