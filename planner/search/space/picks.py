"""A few nodes and bundles of families that are worth a look of their own."""

from dataclasses import replace

import numpy as np

from cost_models.mesh import MeshKey
from cost_models.specs.offload import parse_offload
from cost_models.specs.strategy import Strategy
from planner.families import Families, State
from planner.search.space.bundles import Bundles
from planner.search.space.frontier import Nodes

PLAIN_AROUND = 3
"""Plain kinds under which meshes around a plan are looked for."""


def plain_kinds(families: Families) -> list[int]:
    """Kinds with the first context parallelism and order, without scopes first."""
    keys = families.options.kinds
    alike = [i for i, key in enumerate(keys) if replace(key, scopes=()) == replace(keys[0], scopes=())]
    return sorted(alike, key=lambda i: len(keys[i].scopes))


def plain_states(families: Families) -> list[int]:
    """States with the fewest replicas and the least on the host."""
    states = families.options.states
    fewest = min((s.replicate for s in states), default=1)
    least = min(((s.offload.optimizer, s.offload.parameters) for s in states), default=(0.0, False))
    return [
        i
        for i, s in enumerate(states)
        if s.replicate == fewest and (s.offload.optimizer, s.offload.parameters) == least
    ]


def first_of_degrees(families: Families, nodes: Nodes, degrees: tuple[str, ...]) -> Nodes:
    """Of the nodes that agree in some degrees the lowest one each."""
    rows = families.rows
    columns = np.stack([getattr(rows, axis)[nodes.row] for axis in degrees])
    _, first = np.unique(columns, axis=1, return_index=True)
    return nodes.take(np.sort(first))


def first_of_each(families: Families, bundles: Bundles) -> Bundles:
    """Of the bundles that agree in pipeline, chunks, schedule and ZeRO stage the first one each."""
    member = bundles.first[bundles.bundle]
    zero = np.asarray([state.zero for state in families.options.states])[bundles.state[member]]
    pp = families.rows.pp[bundles.row[member]]
    _, first = np.unique(np.stack([pp, bundles.pipe, zero]), axis=1, return_index=True)
    return bundles.take(np.sort(first))


def beside(families: Families, strategy: Strategy) -> Bundles:
    """Meshes that differ from a strategy in schedule and chunks alone."""
    options = families.options
    alike = np.ones(families.rows.size, dtype=bool)
    for axis in ("tp", "cp", "pp", "ep", "etp", "mbs", "sp"):
        alike &= getattr(families.rows, axis) == int(getattr(strategy, axis))
    (row,) = np.flatnonzero(alike)[:1] if alike.any() else (None,)
    wanted = State(strategy.zero, strategy.dp_replicate, parse_offload(strategy.offload))
    if row is None or wanted not in options.states:
        return Bundles.none()
    same = (strategy.recompute.scopes, strategy.cp_kind, strategy.order, strategy.act_offload)
    kinds = [i for i, key in enumerate(options.kinds) if _words(key) == same]
    pairs = [(kind, pipe) for kind in kinds for pipe in np.flatnonzero(families.pipes_legal[row])]
    kind, pipe = np.asarray(pairs, dtype=np.int64).reshape(-1, 2).T
    of_all = np.ones(len(pairs), dtype=np.int64)
    state = options.states.index(wanted)
    each = np.arange(len(pairs) + 1)
    return Bundles(kind, of_all * int(row), of_all * state, each, each[:-1], pipe, np.zeros(len(pairs)))


def around(families: Families, strategy: Strategy) -> Nodes:
    """Nodes whose degrees differ from a strategy's in two axes at most, under its own kind and under plain ones."""
    same = (strategy.recompute.scopes, strategy.cp_kind, strategy.order, strategy.act_offload)
    keys = families.options.kinds
    own = [i for i, key in enumerate(keys) if _words(key) == same]
    return _nodes_near(families, strategy, list(dict.fromkeys([*own, *plain_kinds(families)[:PLAIN_AROUND]])))


def beside_scopes(families: Families, strategy: Strategy) -> Nodes:
    """Nodes near a strategy under its own scopes, whatever the order of axes and the kind of context parallelism."""
    scopes, keys = set(strategy.recompute.scopes), families.options.kinds
    alike = [i for i, key in enumerate(keys) if set(key.scopes) == scopes]
    return _nodes_near(
        families, strategy, [i for i in alike if keys[i].activations.text() == strategy.act_offload]
    )


def _nodes_near(families: Families, strategy: Strategy, kinds: list[int]) -> Nodes:
    """Nodes of some kinds whose degrees differ from a strategy's in two axes at most."""
    axes = ("tp", "cp", "pp", "ep", "etp", "dp", "mbs")
    differ = sum((getattr(families.rows, axis) != int(getattr(strategy, axis))).astype(int) for axis in axes)
    rows = np.flatnonzero(np.asarray(differ) <= 2)
    at, column = np.nonzero(families.kinds_legal[rows][:, kinds])
    return Nodes(np.asarray(kinds, dtype=np.int64)[column], rows[at], np.zeros(at.size))


def own_states(families: Families, strategy: Strategy) -> list[int]:
    """A strategy's state, and the plain ones."""
    own = State(strategy.zero, strategy.dp_replicate, parse_offload(strategy.offload))
    states = families.options.states
    return [i for i, state in enumerate(states) if state == own or i in plain_states(families)]


def _words(key: MeshKey) -> tuple[object, ...]:
    """What a kind says of a strategy."""
    return key.scopes, key.cp_kind, key.order, key.activations.text()
