"""Meshes that differ in replicas and in the order of axes alone, looked at together before they are looked at singly.

Such siblings run the same kernels; they differ in how long reductions, gathers, optimizer and sends take, and in bytes.
A mesh with the least of each, the ideal of the bundle, is at least as good as every sibling under every choice of
stages and recompute, so what no choice of the ideal reaches no choice of a sibling does.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np

from cost_models.chunk import Array, LayerTable, MeshCosts, StepRules
from cost_models.mesh import Int, MeshBatch
from cost_models.mesh_costs import BatchRules, batch_rules
from cost_models.pricing import PricedRows, Pricer
from cost_models.specs.job import Job
from planner.families import Families
from planner.search.bounding.path_pool import Point
from planner.search.bounding.pool_bounds import MemberTimes
from planner.search.bounding.work_cache import WorkCache
from planner.search.bounding.work_cache import joined as joined_works
from planner.search.space.walk import PRICED_TOGETHER, AsSearched, Walked, walked_mesh

_LARGEST = frozenset({"sync_overlap", "allocated_limit_bytes", "host_room_bytes"})
"""Rules of which the largest is best."""


@dataclass(frozen=True, slots=True)
class Bundles:
    """Bundles with a pipe each, and their bounds; arrays (n,). Members of bundle b stand at first[b]..first[b + 1]."""

    kind: Int
    row: Int
    state: Int
    first: Int
    bundle: Int
    pipe: Int
    bound_s: Array

    @classmethod
    def none(cls) -> "Bundles":
        """No bundles."""
        empty = np.zeros(0, dtype=np.int64)
        return cls(empty, empty, empty, np.zeros(1, dtype=np.int64), empty, empty, np.zeros(0))

    @property
    def size(self) -> int:
        """How many."""
        return int(self.bundle.size)

    @property
    def stands_for(self) -> Int:
        """Meshes of each, (n,)."""
        number: Int = np.diff(self.first)[self.bundle]
        return number

    def take(self, where: Int) -> "Bundles":
        """Some of them."""
        return replace(self, bundle=self.bundle[where], pipe=self.pipe[where], bound_s=self.bound_s[where])

    def rising(self) -> "Bundles":
        """The same in the order of their bounds."""
        return self.take(np.argsort(self.bound_s, kind="stable"))

    @classmethod
    def joined(cls, parts: "list[Bundles]") -> "Bundles":
        """Several lists as one."""
        parts = [part for part in parts if part.size] or [cls.none()]
        members = np.cumsum([0, *(part.kind.size for part in parts[:-1])])
        bundles = np.cumsum([0, *(part.first.size - 1 for part in parts[:-1])])
        firsts = [part.first[:-1] + at for part, at in zip(parts, members, strict=True)]
        return cls(
            np.concatenate([part.kind for part in parts]),
            np.concatenate([part.row for part in parts]),
            np.concatenate([part.state for part in parts]),
            np.concatenate([*firsts, [sum(part.kind.size for part in parts)]]),
            np.concatenate([part.bundle + at for part, at in zip(parts, bundles, strict=True)]),
            np.concatenate([part.pipe for part in parts]),
            np.concatenate([part.bound_s for part in parts]),
        )


@dataclass(frozen=True, slots=True)
class Bundle:
    """One bundle with its bound, its members (one member is its own ideal) and their times."""

    bound_s: float
    members: tuple[Walked, ...]
    times: MemberTimes

    def ideal(self) -> MeshCosts:
        """The ideal of the members."""
        return ideal_of([walked.mesh for walked in self.members])

    def point(self, job: Job) -> Point:
        """(schedule, p, v, m) of all members."""
        batch, row = self.members[0].batch, self.members[0].row
        micro = int(batch.micro_batches(job.global_batch)[row])
        return batch.schedule_name(row), int(batch.pp[row]), int(batch.vpp[row]), micro

    def take(self, where: Int, bounds: Array) -> "Bundle":
        """The bundle of some of its members, whose bounds are given for all of them."""
        members = tuple(
            replace(self.members[place], bound_s=float(bounds[place])) for place in where.tolist()
        )
        return Bundle(float(bounds[where].min(initial=np.inf)), members, self.times.take(where))


@dataclass(frozen=True, slots=True)
class BundlePricer:
    """Prices the members of bundles, a block of bundles at a time."""

    pricer: Pricer
    families: Families
    work: WorkCache
    as_searched: AsSearched

    def block(self, bundles: Bundles, size: int = PRICED_TOGETHER) -> Iterator[Bundle]:
        """The first bundles of a list, in its order."""
        few = bundles.take(np.arange(min(size, bundles.size)))
        for start in range(0, few.size, 16):
            yield from self._priced(few.take(np.arange(start, min(start + 16, few.size))))

    def _priced(self, few: Bundles) -> Iterator[Bundle]:
        members = [np.arange(few.first[b], few.first[b + 1]) for b in few.bundle]
        owner = np.repeat(np.arange(few.size), [m.size for m in members])
        place = np.concatenate([*members, np.zeros(0, dtype=np.int64)])
        walked: dict[int, list[Walked]] = {}
        at_of: dict[int, list[int]] = {}
        times: list[MemberTimes] = []
        done = 0
        for here in self._alike(few.kind[place], few.state[place]):
            priced, rules, own = self._together(few, place[here], few.pipe[owner[here]])
            times.append(MemberTimes.of(priced, rules))
            for index, number in enumerate(owner[here].tolist()):
                mesh = walked_mesh((self.pricer, self.as_searched), (priced, rules, index), own[index])
                walked.setdefault(number, []).append(replace(mesh, bound_s=float(few.bound_s[number])))
                at_of.setdefault(number, []).append(done + index)
            done += here.size
        if not few.size:
            return
        joined = MemberTimes.joined(times)
        for number in range(few.size):
            mine = joined.take(np.asarray(at_of[number]))
            yield Bundle(float(few.bound_s[number]), tuple(walked[number]), mine)

    def _alike(self, kind: Int, state: Int) -> Iterator[Int]:
        """Places of members whose kinds differ in scopes alone, of one offload, in the order of their kinds."""
        keys, states = self.families.options.kinds, self.families.options.states
        bare = [replace(key, scopes=()) for key in keys]
        same = np.asarray([bare.index(key) for key in bare])[kind]
        offloads = list(dict.fromkeys(one.offload for one in states))
        kept = np.asarray([offloads.index(one.offload) for one in states])[state]
        code = same * len(offloads) + kept
        for one in np.unique(code).tolist():
            (here,) = np.nonzero(code == one)
            yield here[np.argsort(kind[here], kind="stable")]

    def _together(
        self, few: Bundles, place: Int, pipe: Int
    ) -> tuple[PricedRows, BatchRules, list[tuple[MeshBatch, int]]]:
        """Members priced in one batch, and each one's place in a batch of its own kind."""
        kinds, row = few.kind[place], few.row[place]
        batch = self.families.batch(int(kinds[0]), row, few.state[place], pipe)
        works, own = [], []
        for kind in np.unique(kinds).tolist():
            here = kinds == kind
            works.append(self.work.work(self.families.options.kinds[kind], row[here]))
            key = replace(batch.key, scopes=self.families.options.kinds[kind].scopes)
            mine = replace(batch.take(here), key=key)
            own += [(mine, at) for at in range(mine.size)]
        priced = self.pricer.price(batch, joined_works(works))
        return priced, batch_rules(self.pricer, priced), own


def ideal_of(meshes: list[MeshCosts]) -> MeshCosts:
    """A mesh with the least of every cost of several meshes of one shape."""
    if len(meshes) == 1:
        return meshes[0]
    tables, rules = [mesh.table for mesh in meshes], [mesh.rules for mesh in meshes]
    columns = {f.name: [getattr(table, f.name) for table in tables] for f in fields(LayerTable)}
    table = LayerTable(
        *(None if of[0] is None else np.minimum.reduce(of) for of in columns.values())  # type: ignore[arg-type]
    )
    best = {
        f.name: (max if f.name in _LARGEST else min)(getattr(r, f.name) for r in rules)
        for f in fields(StepRules)
    }
    return replace(meshes[0], table=table, rules=StepRules(**best))
