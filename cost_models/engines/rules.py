"""Legality as named rules: one vectorised predicate and one sentence with the nearest legal values each."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cost_models.errors import Violation
from cost_models.mesh import SCHEDULES, Bool, Int, MeshBatch
from cost_models.operators import Activation, Attention, GroupedLinear, LinearAttention, StateSpaceScan
from cost_models.operators.base import Operator
from cost_models.schedule.names import ScheduleName
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.job import Job
from cost_models.specs.model import ModelSpec, Role
from cost_models.specs.strategy import Strategy, divisors


@dataclass(frozen=True)
class Facts:
    """The numbers that legality depends on.

    Where a cluster of equal devices stands for several device groups, `runs` are the devices of groups that each hold
    whole pipeline ranks, and `shared` those of groups that each hold whole data-parallel replicas.
    """

    model: ModelSpec
    cluster: ClusterSpec
    job: Job
    runs: tuple[int, ...] = ()
    shared: tuple[int, ...] = ()

    @cached_property
    def operators(self) -> tuple[Operator, ...]:
        """Every operator of every layer kind."""
        return tuple(op for kind in self.model.kinds.values() for op in kind.operators)

    @cached_property
    def shares_blocks(self) -> bool:
        """Whether blocks use weights of other blocks."""
        layers = any(layer.shares for layer in self.model.layers)
        return layers or any(op.shares for op in self.operators)

    @cached_property
    def heads(self) -> tuple[int, ...]:
        """Different numbers of attention (and state-space, and linear attention's) heads."""
        mixers = Attention | LinearAttention | StateSpaceScan
        found = {op.heads for op in self.operators if isinstance(op, mixers)}
        found |= {op.key_heads for op in self.operators if isinstance(op, LinearAttention)}
        return tuple(sorted(found))

    @cached_property
    def kv_heads(self) -> tuple[int, ...]:
        """Different numbers of key/value heads."""
        return tuple(sorted({op.kv_heads for op in self.operators if isinstance(op, Attention)}))

    @cached_property
    def state_groups(self) -> tuple[int, ...]:
        """Different numbers of state-space groups."""
        return tuple(sorted({op.groups for op in self.operators if isinstance(op, StateSpaceScan)}))

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Different widths of dense feed-forward layers."""
        return tuple(
            sorted({op.width for op in self.operators if isinstance(op, Activation) and not op.expert_top_k})
        )

    @cached_property
    def uncut_kinds(self) -> tuple[str, ...]:
        """Kinds of blocks after which the model lets no stage end (the very last block apart)."""
        blocks = [layer for layer in self.model.layers if layer.role is Role.BLOCK]
        inner = {layer.kind for layer in blocks[:-1]} | {
            layer.kind for layer in blocks[-1:] if layer.count > 1
        }
        return tuple(sorted(kind for kind in inner if not self.model.kinds[kind].cut_after))

    @cached_property
    def num_experts(self) -> tuple[int, ...]:
        """Number of experts, where there are any."""
        return (self.model.num_experts,) if self.model.is_moe else ()

    @cached_property
    def expert_widths(self) -> tuple[int, ...]:
        """Different widths of experts."""
        return tuple(sorted({op.out_features for op in self.operators if isinstance(op, GroupedLinear)}))


MAX_LISTED = 4096
"""A rule without sizes allows every value; on more devices than this only those that divide them are listed."""

Broken = Callable[[Facts, MeshBatch], Bool]
Sentence = Callable[[Facts, dict[str, int], Strategy], tuple[str, tuple[str, ...]]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A legality rule: `broken` for a batch of meshes, `sentence` for one of them; `source` is where it comes from.

    A rule on one axis alone names it, and with `values` the values that it allows.
    """

    name: str
    source: str
    broken: Broken
    sentence: Sentence
    axis: str = ""
    values: Callable[[Facts], tuple[int, ...]] | None = None

    def explain(
        self, facts: Facts, mesh: dict[str, int], strategy: Strategy, beside: "tuple[Rule, ...]" = ()
    ) -> Violation:
        """The violation with its numbers and nearest legal values; of an axis those that no rule `beside` forbids."""
        detail, nearest = self.sentence(facts, mesh, strategy)
        if self.values is not None:
            allowed = set(self.values(facts))
            for rule in beside:
                if rule.axis == self.axis and rule.values is not None:
                    allowed &= set(rule.values(facts))
            nearest = nearest_values(self.axis, tuple(sorted(allowed)), mesh[self.axis]) or nearest
        return Violation(self.name, detail, nearest, self.source)


def nearest_worlds(devices: int, inner: int, degrees: str = "tp x cp x pp") -> tuple[str, ...]:
    """Degrees that divide the devices, or devices that the degrees divide: the multiples below and above."""
    below, above = devices // inner * inner, -(-devices // inner) * inner
    counts = " or ".join(f"{n:,}" for n in (below, above) if n)
    return (*nearest_values(degrees, divisors(devices), inner), f"{counts} devices")


def nearest_values(name: str, legal: tuple[int, ...], wanted: int, limit: int = 7) -> tuple[str, ...]:
    """`name 1, 2, 3, 4 or 6`: the legal values closest to the wanted one, rising."""
    close = sorted(sorted(legal, key=lambda n: (abs(n - wanted), n))[:limit])
    if not close:
        return ()
    head = ", ".join(str(n) for n in close[:-1])
    return (f"{name} {head} or {close[-1]}" if head else f"{name} {close[0]}",)


def divides(name: str, axis: str, label: str, sizes: Callable[[Facts], tuple[int, ...]], source: str) -> Rule:
    """A rule that `axis` must divide every one of `sizes`."""

    def broken(facts: Facts, meshes: MeshBatch) -> Bool:
        bad = np.zeros(meshes.size, dtype=bool)
        for size in sizes(facts):
            bad |= size % getattr(meshes, axis) != 0
        return bad

    def sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
        value = mesh[axis]
        size = next(n for n in sizes(facts) if n % value)
        detail = f"{label} {size} is not divisible by {axis} {value}"
        return detail, nearest_values(axis, values(facts), value)

    def values(facts: Facts) -> tuple[int, ...]:
        most = facts.cluster.num_devices
        if not sizes(facts):
            return tuple(range(1, most + 1)) if most <= MAX_LISTED else divisors(most)
        common = int(np.gcd.reduce(sizes(facts)))
        return tuple(d for d in divisors(common) if d <= most)

    return Rule(name, source, broken, sentence, axis, values)


def fixed(name: str, source: str, broken: Broken, detail: str, nearest: tuple[str, ...]) -> Rule:
    """A rule whose sentence takes only the mesh's own numbers (format fields)."""
    return Rule(name, source, broken, lambda facts, mesh, strategy: (detail.format(**mesh), nearest))


def runs(name: str, schedules: tuple[ScheduleName, ...], source: str) -> Rule:
    """A rule that an engine has only some pipeline schedules."""

    def broken(facts: Facts, meshes: MeshBatch) -> Bool:
        known = [SCHEDULES.index(schedule) for schedule in schedules]
        bad: Bool = ~np.isin(meshes.schedule, known)
        return bad

    def sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
        detail = f"engine {facts.job.engine} has no schedule {strategy.schedule.value}"
        return detail, tuple(f"schedule={each.value}" for each in schedules)

    return Rule(name, source, broken, sentence)


def only(name: str, axis: str, allowed: tuple[int, ...], why: str, source: str) -> Rule:
    """A rule that `axis` takes only some values under an engine."""

    def broken(facts: Facts, meshes: MeshBatch) -> Bool:
        values: Int = getattr(meshes, axis)
        bad: Bool = ~np.isin(values, allowed)
        return bad

    return fixed(
        name, source, broken, f"{axis} {{{axis}}} {why}", (f"{axis} {' or '.join(map(str, allowed))}",)
    )


def replaced(rules: tuple[Rule, ...], *own: Rule) -> tuple[Rule, ...]:
    """The rules with an engine's own in place of those of the same names."""
    by_name = {rule.name: rule for rule in own}
    return tuple(by_name.get(rule.name, rule) for rule in rules)
