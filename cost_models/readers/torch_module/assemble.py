"""A module taken apart, and what its runs cost -> ModelSpec."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

from cost_models.errors import InvalidModel
from cost_models.operators.base import Operator
from cost_models.operators.traced import Growth
from cost_models.operators.traced import Traced as TracedOperator
from cost_models.readers.blocks.layers import layer_kind
from cost_models.readers.torch_module.costs import Traced, UnitCost
from cost_models.readers.torch_module.ends import Ends, tables
from cost_models.readers.torch_module.kinds import (
    Scale,
    Weights,
    attention_operators,
    expert_operators,
    shared_operators,
    traced,
)
from cost_models.readers.torch_module.structure import LayerModule, Structure
from cost_models.readers.torch_module.towers import Tower
from cost_models.readers.torch_module.trace import Prepared
from cost_models.specs.counts import count_parameters
from cost_models.specs.model import Assumed, Layer, LayerKind, ModelSpec, Stack

if TYPE_CHECKING:
    from torch import nn

MAX_CHAIN: Final = 4
"""More stacks than this are no chain of layers that a pipeline could cut."""


@dataclass(frozen=True)
class Facts:
    """What is known beside the module: names, sizes of the config, how its attention looks."""

    name: str
    family: str
    reader: str
    hidden: int = 0
    max_seq_len: int = 0
    causal: bool = False
    two_lengths: bool = False
    """Encoder and decoder have lengths of their own."""
    assumed: tuple[Assumed, ...] = ()
    semantics: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Entry:
    """A layer as it is executed."""

    layer: LayerModule
    kind: str
    cost: UnitCost | None
    stack: str
    times_called: int
    turns: bool = False
    """Whether the module runs as several kinds (it is looped over and sees other shapes the second time)."""
    tower: Tower | None = None


class Assembly:
    """Puts one model together; raises InvalidModel where the parts do not add up to the whole."""

    def __init__(self, prepared: Prepared, found: Traced, towers: Sequence[Tower], facts: Facts) -> None:
        self._prepared, self._found, self._towers, self._facts = prepared, found, towers, facts
        self._structure: Structure = prepared.structure
        self._tables = tables(prepared.model)
        self._notes: list[Assumed] = []
        self._kinds: dict[str, LayerKind] = {}
        self._unused: set[str] = set()
        self._groups = _shared_groups(prepared.structure)

    def model(self) -> ModelSpec:
        """The model, its parameters checked against those of the module."""
        facts, found = self._facts, self._found
        entries = self._entries()
        chain = self._is_chain(entries)
        layers = [self._layer(entry, chain) for entry in entries]
        stacks = self._stacks(entries)
        scale = Scale(found.side, facts.causal, facts.hidden or self._width(entries))
        ends = Ends(self._prepared, found, tuple(tower.outside for tower in self._towers), scale)
        first, between, last = ends.layers(stacks, self._kinds)
        experts = [each for held in self._prepared.experts.values() for each in held]
        count = math.gcd(*(each.experts for each in experts)) if experts else 0
        model = ModelSpec(
            name=facts.name,
            family=facts.family,
            layers=(*first, *between, *_merged(layers), *last),
            kinds={name: kind for name, kind in self._kinds.items() if name not in self._unused},
            stacks=stacks,
            vocab_size=ends.vocabulary,
            hidden_size=facts.hidden or self._width(entries),
            num_experts=count,
            num_experts_per_token=max((each.top_k for each in experts), default=0),
            max_seq_len=facts.max_seq_len,
            tied_embeddings=ends.tied,
            image_size=found.side,
            semantics=dict(facts.semantics),
            assumed=(*facts.assumed, *self._notes),
            reader=facts.reader,
        )
        counted = count_parameters(model).parameters
        if counted != self._structure.total:
            raise InvalidModel(
                f"the layers that were found hold {counted:,} parameters, the built model {self._structure.total:,}; "
                "describe it in a layers file (docs/models.md)"
            )
        return model

    def _entries(self) -> list[_Entry]:
        """Layers in the order in which they ran; those that did not run stand where their list has them."""
        layers = self._structure.layers
        stack_of = [stack.path or "layers" for stack in self._structure.stacks for _ in stack.layers]
        times = Counter(call.layer for call in self._found.calls)
        variants: defaultdict[int, set[int]] = defaultdict(set)
        for call in self._found.calls:
            variants[call.layer].add(call.variant)
        found: list[tuple[float, int, _Entry]] = []
        for order, call in enumerate(self._found.calls):
            cost = self._found.units.get((call.kind, call.variant))
            name = call.kind if not call.variant else f"{call.kind}_shape_{call.variant + 1}"
            turns = len(variants[call.layer]) > 1
            entry = _Entry(layers[call.layer], name, cost, stack_of[call.layer], times[call.layer], turns)
            found.append((float(order), call.layer, entry))
        place = {call.layer: float(order) for order, call in enumerate(self._found.calls)}
        called = {id(layers[call.layer].module) for call in self._found.calls}
        repeated = Counter(id(layer.module) for layer in layers)
        for index, layer in enumerate(layers):
            if id(layer.module) in called:
                continue
            before = [place[i] for i in place if i < index and stack_of[i] == stack_of[index]]
            tower, cost = self._tower_of(index)
            entry = _Entry(layer, layer.kind, cost, stack_of[index], repeated[id(layer.module)], tower=tower)
            found.append((max(before, default=-1.0), index, entry))
        return [entry for _, _, entry in sorted(found, key=lambda each: each[:2])]

    def _tower_of(self, place: int) -> tuple[Tower | None, UnitCost | None]:
        for tower in self._towers:
            cost = tower.cost_at(place)
            if cost is not None:
                return tower, cost
        return None, None

    def _is_chain(self, entries: Sequence[_Entry]) -> bool:
        """Whether every stack runs in one piece, so that a pipeline may cut between its layers."""
        runs = [
            entry.stack for i, entry in enumerate(entries) if not i or entries[i - 1].stack != entry.stack
        ]
        return len(runs) == len(set(runs)) <= MAX_CHAIN

    def _layer(self, entry: _Entry, chain: bool) -> Layer:
        """A layer, and its kind where it is new."""
        groups = self._groups.get(id(entry.layer.module), {})
        name = entry.kind + "".join(f"_{group.rpartition(':')[2]}" for group in sorted(groups))
        if name not in self._kinds:
            self._kinds[name] = self._kind(name, entry, groups, chain)
        if not entry.turns:
            return Layer(
                kind=name, stack=entry.stack, shares=entry.layer.path if entry.times_called > 1 else ""
            )
        # One module that runs as several kinds: its operators share their weights, the kinds being different.
        own = f"{name} of {entry.layer.path}"
        shared = [
            op.model_copy(update={"shares": op.shares or entry.layer.path})
            for op in self._kinds[name].operators
        ]
        self._kinds[own] = self._kinds[name].model_copy(update={"name": own, "operators": tuple(shared)})
        self._unused.add(name)
        return Layer(kind=own, stack=entry.stack)

    def _kind(
        self, name: str, entry: _Entry, groups: Mapping[str, Sequence[nn.Parameter]], chain: bool
    ) -> LayerKind:
        module, cost = entry.layer.module, entry.cost
        experts = self._prepared.experts.get(id(module), ())
        apart = {key for each in experts for key in each.parameters}
        apart |= {id(parameter) for held in groups.values() for parameter in held}
        rest = [p for p in module.parameters() if id(p) not in apart]
        scale = self._scale(entry)
        self._note(name, cost)
        if entry.tower and cost:
            cost = _per_position(cost, entry.tower)
        operators: list[Operator] = [traced("work", Weights.of(rest, self._tables), cost, scale)]
        operators += attention_operators(cost)
        operators += expert_operators(experts, scale.hidden)
        operators += shared_operators(
            {group: Weights.of(held, self._tables) for group, held in groups.items()}
        )
        width = _boundary(operators[0])
        return layer_kind(name, operators, width, cut_after=chain)

    def _scale(self, entry: _Entry) -> Scale:
        causal = self._facts.causal
        for part in entry.layer.module.modules():
            stated = vars(part).get("is_causal")
            if isinstance(stated, bool):
                causal = stated
                break
        hidden = entry.cost.channels if entry.cost and entry.cost.channels else self._facts.hidden
        return Scale(self._found.side, causal, hidden or 1)

    def _note(self, kind: str, cost: UnitCost | None) -> None:
        """Say where costs are no exact counts."""
        if cost is None or cost.failed:
            reason = (cost.failed if cost else "") or self._found.reason or "it did not run"
            text = f"2 FLOPs a weight and token, not traced: {reason}"[:300]
        elif not cost.exact:
            text = "in proportion to the length, as traced at one: no quadratic fits"
        else:
            return
        self._notes.append(Assumed(key=f"costs of {kind}", value=text, changes_parameters=False))

    def _stacks(self, entries: Sequence[_Entry]) -> tuple[Stack, ...]:
        names = list(dict.fromkeys(entry.stack for entry in entries))
        positions = {entry.stack: entry.tower.positions for entry in entries if entry.tower}
        if self._found.side:
            return tuple(Stack(name=name, length="image_size") for name in names)
        found = []
        for name in names:
            decoder = self._facts.two_lengths and "decoder" in name
            reads = tuple(other for other in names if "encoder" in other and other != name) if decoder else ()
            length = "decoder_seq_len" if decoder else "seq_len"
            found.append(Stack(name=name, length=length, reads=reads[:1], positions=positions.get(name, 0)))
        return tuple(found)

    @staticmethod
    def _width(entries: Sequence[_Entry]) -> int:
        return next((entry.cost.channels for entry in entries if entry.cost and entry.cost.channels), 1)


def _merged(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """Equal layers in a row as one entry."""
    return tuple(layer.model_copy(update={"count": len(tuple(same))}) for layer, same in groupby(layers))


def _shared_groups(structure: Structure) -> dict[int, dict[str, list[nn.Parameter]]]:
    """By layer module: groups of parameters that several layers hold, named after who holds them."""
    holders: defaultdict[int, list[int]] = defaultdict(list)
    modules = {id(layer.module): layer.module for layer in structure.layers}
    for place, module in enumerate(modules.values()):
        for parameter in module.parameters():
            holders[id(parameter)].append(place)
    numbers: dict[tuple[int, ...], str] = {}
    found: dict[int, dict[str, list[nn.Parameter]]] = {}
    for key, module in modules.items():
        groups: defaultdict[str, list[nn.Parameter]] = defaultdict(list)
        for parameter in module.parameters():
            held = tuple(holders[id(parameter)])
            if len(held) > 1:
                groups[numbers.setdefault(held, f"shared:{len(numbers) + 1}")].append(parameter)
        if groups:
            found[key] = dict(groups)
    return found


def _per_position(cost: UnitCost, tower: Tower) -> UnitCost:
    """Work of a tower's one input as work of each of its positions."""

    def spread(growth: Growth) -> Growth:
        return Growth(linear=growth.linear / tower.positions)

    return replace(
        cost,
        flops=spread(cost.flops),
        moved=spread(cost.moved),
        kept={role: spread(growth) for role, growth in cost.kept.items()},
        width=spread(cost.width),
    )


def _boundary(operator: Operator) -> int:
    """Elements per position (per sample of images) that a layer hands on."""
    return round(operator.width) if isinstance(operator, TracedOperator) else 0
