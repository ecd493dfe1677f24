"""A space too large to list: rows of degrees, times ways to run the pipeline, to keep states, and kinds of mesh.

    mesh = row (tp, cp, pp, ep, etp, dp, mbs, sp) x pipe (schedule, vpp) x state (zero, dp_replicate, offload)
           x kind (recompute scopes, kind of context parallelism, order of axes, offloaded activations)

A rule of legality looks at few axes, so it is asked once per row and once per (row, pipe), (row, state) or (row, kind)
instead of once per mesh. Which axes a rule looks at is not declared but seen: it is given columns that remember having
been read, and a rule that never read a column cannot depend on it. Rules that read two of pipe, state and kind at once
are refused (`CrossedRule`): no engine has one.

Counts are exact. A mesh is illegal by the first rule it breaks, in the order rows, pipes, states, kinds and within each
in the order of the engine.
"""

import random
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from cost_models.engines import Engine, Facts
from cost_models.engines.rules import Rule
from cost_models.mesh import Bool, Int, MeshBatch, MeshKey
from cost_models.specs.offload import NO_OFFLOAD, Offload

AXES = tuple(f.name for f in fields(MeshBatch) if f.name != "key")
PIPE_AXES = frozenset({"schedule", "vpp"})
STATE_AXES = frozenset({"zero", "dp_replicate", "dp_shard", "offload"})
KIND_AXES = frozenset({"scopes", "cp_kind", "order", "activations"})


class CrossedRule(Exception):
    """A rule reads axes of two of pipe, state and kind: the families cannot count by it."""


@dataclass(frozen=True, slots=True)
class State:
    """How parameter states are kept."""

    zero: int
    replicate: int
    offload: Offload = NO_OFFLOAD


@dataclass(frozen=True, slots=True)
class Options:
    """What is combined with every row: pipes (n, 2) of schedule and vpp, states, kinds (keys without offload)."""

    pipes: Int
    states: tuple[State, ...]
    kinds: tuple[MeshKey, ...]


@dataclass(frozen=True)
class Families:
    """Rows that break no rule of their own, and which options each may be combined with; masks (N, options)."""

    rows: MeshBatch
    options: Options
    pipes_legal: Bool
    states_legal: Bool
    kinds_legal: Bool

    @cached_property
    def num_pipes(self) -> Int:
        """Pipes of every row, (N,)."""
        count: Int = self.pipes_legal.sum(1)
        return count

    @cached_property
    def num_states(self) -> Int:
        """States of every row, (N,)."""
        count: Int = self.states_legal.sum(1)
        return count

    @property
    def size(self) -> int:
        """Legal meshes."""
        return int((self.num_pipes * self.num_states * self.kinds_legal.sum(1)).sum())

    def batch(self, kind: int, rows: Int, states: Int, pipes: Int) -> MeshBatch:
        """Meshes of one kind from rows, states and pipes of one offload, all (n,)."""
        first = self.options.states[int(states[0])].offload if len(states) else NO_OFFLOAD
        taken = self.rows.take(rows)
        replicas = np.asarray([s.replicate for s in self.options.states], dtype=np.int64)[states]
        columns = {name: getattr(taken, name) for name in AXES}
        columns["zero"] = np.asarray([s.zero for s in self.options.states], dtype=np.int64)[states]
        columns["dp_replicate"], columns["dp_shard"] = replicas, taken.dp // replicas
        columns["schedule"], columns["vpp"] = self.options.pipes[pipes, 0], self.options.pipes[pipes, 1]
        return MeshBatch(replace(self.options.kinds[kind], offload=first), *(columns[name] for name in AXES))

    def everything(self) -> tuple[MeshBatch, ...]:
        """All legal meshes, a batch per kind and offload: for spaces that are known to be small."""
        offloads = dict.fromkeys(state.offload for state in self.options.states)
        return tuple(
            self.of_kind(kind, [i for i, s in enumerate(self.options.states) if s.offload == offload])
            for kind in range(len(self.options.kinds))
            for offload in offloads
        )

    def sampled(self, rng: random.Random, kinds: int, rows: int) -> Iterator[MeshBatch]:
        """Legal meshes of a few kinds, about `rows` of each, drawn evenly over rows, states and pipes."""
        for kind in rng.sample(range(len(self.options.kinds)), min(kinds, len(self.options.kinds))):
            row = np.flatnonzero(self.kinds_legal[:, kind] & (self.num_states > 0) & (self.num_pipes > 0))
            offload = rng.choice(self.options.states).offload if self.options.states else NO_OFFLOAD
            of_offload = np.asarray([s.offload == offload for s in self.options.states], dtype=bool)
            row = row[(self.states_legal[row] & of_offload).any(1)] if row.size else row
            if not row.size:
                continue
            drawn = np.asarray([row[rng.randrange(row.size)] for _ in range(rows)])
            state = [_one_of(rng, self.states_legal[r] & of_offload) for r in drawn]
            pipe = [_one_of(rng, self.pipes_legal[r]) for r in drawn]
            yield self.batch(kind, drawn, np.asarray(state), np.asarray(pipe))

    def of_kind(self, kind: int, states: list[int]) -> MeshBatch:
        """All legal meshes of one kind whose state is among `states` (of one offload)."""
        held = self.states_legal[:, states] & self.kinds_legal[:, kind, None]
        row, state, pipe = np.nonzero(held[:, :, None] & self.pipes_legal[:, None, :])
        chosen = np.asarray(states, dtype=np.int64)[state]
        if not len(chosen):
            chosen = np.zeros(0, dtype=np.int64)
        return self.batch(kind, row, chosen, pipe)


def _one_of(rng: random.Random, legal: Bool) -> int:
    return int(rng.choice(np.flatnonzero(legal).tolist()))


def sort_out(
    engine: Engine, facts: Facts, rows: MeshBatch, options: Options, plausible: tuple[Bool, Bool, Bool]
) -> tuple[Families, int, dict[str, int]]:
    """The legal families, the number of all meshes, and how many break which rule first.

    `plausible` says which (row, pipe), (row, state) and (row, kind) are combinations at all.
    """
    counter = _Counter(engine, facts, options, plausible)
    return counter.run(rows)


class _Counter:
    """Asks every rule at the level of the axes that it reads."""

    def __init__(
        self, engine: Engine, facts: Facts, options: Options, plausible: tuple[Bool, Bool, Bool]
    ) -> None:
        self._rules, self._facts, self._options = engine.rules(), facts, options
        self._plausible = plausible
        self.illegal: dict[str, int] = {}

    def run(self, rows: MeshBatch) -> tuple[Families, int, dict[str, int]]:
        """Rows first, then each group of options on the rows that are left."""
        masks = self._plausible
        ways = [mask.sum(1).astype(np.int64) for mask in masks]
        total = int((ways[0] * ways[1] * ways[2]).sum())
        levels: dict[int, list[Rule]] = {0: [], 1: [], 2: [], 3: []}
        for rule in self._rules:
            levels[self._level(rule, rows)].append(rule)
        standing = np.arange(rows.size)
        for rule in levels[0]:
            broken = self._broken(rule, rows.take(standing), 0)
            self._count(rule, int((ways[0] * ways[1] * ways[2])[standing[broken]].sum()))
            standing = standing[~broken]
        left = rows.take(standing)
        legal = [mask[standing] for mask in masks]
        for level in (1, 2, 3):
            self._sort_options(level, levels[level], left, legal)
            keep = np.flatnonzero(legal[level - 1].any(1))
            left, legal = left.take(keep), [mask[keep] for mask in legal]
        return Families(left, self._options, *legal), total, self.illegal

    def _sort_options(self, level: int, rules: list[Rule], rows: MeshBatch, legal: list[Bool]) -> None:
        mask = legal[level - 1]
        others = np.ones(rows.size, dtype=np.int64)
        for other in range(3):
            if other != level - 1:
                others *= legal[other].sum(1)
        for option in range(mask.shape[1]):
            standing = np.flatnonzero(mask[:, option])
            asked = self._with(rows.take(standing), level, option)
            for rule in rules:
                if not len(standing):
                    break
                broken = self._broken(rule, asked, level)
                if broken.any():
                    gone, standing = standing[broken], standing[~broken]
                    self._count(rule, int(others[gone].sum()))
                    mask[gone, option] = False
                    asked = asked.take(np.flatnonzero(~broken))

    def _count(self, rule: Rule, number: int) -> None:
        if number:
            self.illegal[rule.name] = self.illegal.get(rule.name, 0) + number

    def _broken(self, rule: Rule, meshes: MeshBatch, level: int) -> Bool:
        """Which meshes break a rule that reads the axes of one level alone."""
        seen = _Seen(set())
        broken = rule.broken(self._facts, _watched(meshes, seen))
        crossed = [other for other, axes in _GROUPS.items() if other != level and seen.names & axes]
        if crossed:
            raise CrossedRule(
                f"rule {rule.name} reads {', '.join(sorted(seen.names))}, which families keep apart"
            )
        return broken

    def _with(self, rows: MeshBatch, level: int, option: int) -> MeshBatch:
        """Rows under one option."""
        if level == 1:
            schedule, vpp = (int(x) for x in self._options.pipes[option])
            return replace(
                rows, schedule=np.full(rows.size, schedule), vpp=np.full(rows.size, vpp, dtype=np.int64)
            )
        if level == 2:
            state = self._options.states[option]
            return replace(
                rows,
                key=MeshKey(offload=state.offload),
                zero=np.full(rows.size, state.zero, dtype=np.int64),
                dp_replicate=np.full(rows.size, state.replicate, dtype=np.int64),
                dp_shard=rows.dp // state.replicate,
            )
        return replace(rows, key=self._options.kinds[option])

    def _level(self, rule: Rule, rows: MeshBatch) -> int:
        """0: reads rows alone; 1, 2, 3: pipes, states or kinds beside them. Checked again wherever it is asked."""
        read: set[str] = set()
        for meshes in self._samples(rows.take(np.arange(min(rows.size, 1)))):
            seen = _Seen(set())
            rule.broken(self._facts, _watched(meshes, seen))
            read |= seen.names
        groups = [level for level, axes in _GROUPS.items() if read & axes]
        if len(groups) > 1:
            raise CrossedRule(f"rule {rule.name} reads {', '.join(sorted(read))}, which families keep apart")
        return groups[0] if groups else 0

    def _samples(self, one: MeshBatch) -> list[MeshBatch]:
        """One row under every kind and every offload."""
        offloads = {state.offload: index for index, state in enumerate(self._options.states)}
        kinds = range(len(self._options.kinds))
        return [*(self._with(one, 2, i) for i in offloads.values()), *(self._with(one, 3, i) for i in kinds)]


_GROUPS: Mapping[int, frozenset[str]] = {1: PIPE_AXES, 2: STATE_AXES, 3: KIND_AXES}


@dataclass(slots=True)
class _Seen:
    """Names of columns that were read."""

    names: set[str]


def _watched(meshes: MeshBatch, seen: _Seen) -> MeshBatch:
    """The same meshes, which note in `seen` what is read of them and of their key."""
    key = _WatchedKey(*(getattr(meshes.key, f.name) for f in fields(MeshKey)))
    object.__setattr__(key, "_seen", seen)
    batch = _WatchedBatch(key, *(getattr(meshes, name) for name in AXES))
    object.__setattr__(batch, "_seen", seen)
    return batch


class _WatchedKey(MeshKey):
    """A key that notes what is read."""

    def __getattribute__(self, name: str) -> object:
        if name in _KEY_FIELDS:
            with suppress(AttributeError):  # while it is made
                object.__getattribute__(self, "_seen").names.add(name)
        return object.__getattribute__(self, name)


class _WatchedBatch(MeshBatch):
    """Meshes that note which columns are read."""

    def __getattribute__(self, name: str) -> object:
        if name in _COLUMNS:
            with suppress(AttributeError):  # while it is made
                object.__getattribute__(self, "_seen").names.add(name)
        return object.__getattribute__(self, name)


_KEY_FIELDS = frozenset(f.name for f in fields(MeshKey))
_COLUMNS = frozenset(AXES)
