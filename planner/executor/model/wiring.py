"""From operators that name their inputs to steps that read and write tensors by one key each.

Conventions of the readers (cost_models.readers.blocks): a linear of several parts writes one tensor a part; `q_raw` is
the part `q` before its norm; the rotary embedding reads and rewrites queries and keys; a gated activation reads both
parts of its linear.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from cost_models.operators import (
    Activation,
    Combine,
    Dispatch,
    Embedding,
    GroupedLinear,
    Linear,
    LmHead,
    Norm,
    Residual,
    Rope,
    Router,
)
from cost_models.operators.base import Operator

INPUT = "x"
"""Key of the layer's input."""

IDS = "ids"
"""Key of the tokens that a multi-token-prediction layer embeds."""

JOINED = "mtp_input"
"""What the projection of a multi-token-prediction layer reads, and the two norms that it is made of, in this order (the
released models')."""
JOINED_OF = ("enorm", "hnorm")

ENTER = "enter"
"""Not an operator: a tensor enters the tensor-parallel region."""

DIVIDE = "divide"
"""Not an operator: a tensor's positions are divided over the tensor-parallel ranks for the routed experts alone."""

UNITE = "unite"
"""Not an operator: what the experts made of the divided positions is whole on every rank again."""

JOIN = "join"
"""Not an operator: embedding and hidden state side by side, what a prediction layer's projection reads."""

SPREAD = "spread"
"""Not an operator: features that ranks have each a part of come together, and positions are divided as outside."""

GATE = "gate"
"""Not an operator: the router's gate on the shared expert's output."""

INSIDE = "@tp"
"""Ending of the key of a tensor that has entered the region."""

DIVIDED = "@slice"
"""Ending of the key of a tensor whose positions are divided for the experts, or of what they made of it."""

PARTS = "@parts"
"""Ending of the key of a tensor of which each rank has a part of the features."""

RAW = "_raw"
LATENT_INPUTS = ("q_up", "kv_down")
"""What the rotary embedding of latent attention reads: full queries, and the latent with the shared key."""

PREDICTED = "mtp_"
"""Beginning of the name of a prediction layer's embedding, which reads tokens beside the layer's input."""

SHARED_OUTPUT = "shared_down"


@dataclass(frozen=True, slots=True)
class Step:
    """One call: the operator (or ENTER), the keys it reads and writes, the operator whose scope it belongs to."""

    module: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    scope_of: str


@dataclass(slots=True)
class _Names:
    """What each name stands for so far."""

    alias: dict[str, str] = field(default_factory=lambda: {INPUT: INPUT})
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    entered: set[str] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)

    def keys(self, name: str) -> tuple[str, ...]:
        if name in self.groups and name not in self.alias:
            return self.groups[name]
        return (self.alias[name.removesuffix(RAW)],)

    def enter(self, key: str, scope_of: str) -> str:
        """The key inside the region; entered once, whoever reads it."""
        return self._passed(ENTER, key, f"{key}{INSIDE}", scope_of)

    def divide(self, key: str, scope_of: str) -> str:
        """The key of the rank's share of the positions; divided once."""
        return self._passed(DIVIDE, key, f"{key}{DIVIDED}", scope_of)

    def _passed(self, step: str, key: str, made: str, scope_of: str) -> str:
        if made not in self.entered:
            self.entered.add(made)
            self.steps.append(Step(step, (key,), (made,), scope_of))
        return made


@dataclass(frozen=True, slots=True)
class Regions:
    """Whether there is a tensor-parallel group, and whether its ranks hold slices of the positions outside it."""

    tensor_parallel: bool = False
    sequence: bool = False

    @property
    def divides_tokens(self) -> bool:
        """Whether ranks hold equal tokens, which must be divided between them for the experts."""
        return self.tensor_parallel and not self.sequence


def wire(operators: Sequence[Operator], regions: Regions) -> tuple[Step, ...]:
    """Steps in order; the last one's output is the layer's."""
    return tuple(_wired(operators, regions).steps)


def keys_of(operators: Sequence[Operator], regions: Regions, tensors: Iterable[str]) -> frozenset[str]:
    """Keys of tensors by the names that recompute scopes use; what stands for a name after the last operator."""
    names = _wired(operators, regions)
    found = {key for tensor in tensors for key in names.keys(tensor)}
    return frozenset(found | {f"{key}{INSIDE}" for key in found})


def _wired(operators: Sequence[Operator], regions: Regions) -> _Names:
    names = _Names()
    for operator in operators:
        if isinstance(operator, Residual):
            _gate_shared(operator, operators, names)
        if operator.inputs == (JOINED,):
            _join(operator, names)
        inputs = _inputs(operator, names)
        if regions.tensor_parallel:
            inputs = _entered(operator, inputs, names, regions)
        outputs = _outputs(operator, operators, names)
        after = _passage(operator, regions)
        written = (f"{operator.name}{after[1]}",) if after else outputs
        names.steps.append(Step(operator.name, inputs, written, operator.name))
        if after:
            names.steps.append(Step(after[0], written, outputs, operator.name))
    return names


def _passage(operator: Operator, regions: Regions) -> tuple[str, str] | None:
    """The step that an operator's output goes through, and the ending of what goes in."""
    if isinstance(operator, Combine) and regions.divides_tokens:
        return UNITE, DIVIDED
    if operator.inputs == (JOINED,) and regions.tensor_parallel:
        return SPREAD, PARTS
    return None


def _join(operator: Operator, names: _Names) -> None:
    """The step that makes what a prediction layer's projection reads."""
    read = tuple(names.alias[name] for name in JOINED_OF)
    names.steps.append(Step(JOIN, read, (JOINED,), operator.name))
    names.alias[JOINED] = JOINED


def _inputs(operator: Operator, names: _Names) -> tuple[str, ...]:
    """Keys that an operator reads."""
    if isinstance(operator, Rope):
        if operator.inputs == LATENT_INPUTS:
            return (names.alias["q_up"], names.alias["kv_down"], names.alias["k_nope"])
        return (names.alias["q"], names.alias["k"])
    if isinstance(operator, Embedding) and operator.name.startswith(PREDICTED):
        return (IDS,)
    read = tuple(key for name in operator.inputs for key in names.keys(name))
    return (*read, *_of_routing(operator, names))


def _of_routing(operator: Operator, names: _Names) -> tuple[str, ...]:
    """What routed experts read beside their rows: choices, counts, the rows' way back and their weights."""
    if isinstance(operator, Dispatch):
        return names.groups["router"]
    if "dispatch" not in names.groups:
        return ()
    _, counts, route, weights = names.groups["dispatch"]
    if isinstance(operator, Combine):
        dispatched = next(step for step in names.steps if step.module == "dispatch")
        return (dispatched.inputs[0], route)
    if isinstance(operator, GroupedLinear):
        return (counts, weights) if operator.bias and operator.split == "row" else (counts,)
    return (weights,) if isinstance(operator, Activation) and operator.expert_top_k else ()


def _entered(operator: Operator, inputs: tuple[str, ...], names: _Names, regions: Regions) -> tuple[str, ...]:
    """Inputs of column-parallel linears and heads enter the region; a latent's shared key does too."""
    column = isinstance(operator, Linear) and operator.split == "column" and not operator.per_sample
    if column or isinstance(operator, LmHead):
        return tuple(names.enter(key, operator.name) for key in inputs)
    if isinstance(operator, Router | Dispatch) and regions.divides_tokens:
        return (names.divide(inputs[0], operator.name), *inputs[1:])
    if isinstance(operator, Rope) and operator.inputs == LATENT_INPUTS:
        return (inputs[0], names.enter(inputs[1], operator.name), inputs[2])
    return inputs


def _outputs(operator: Operator, operators: Sequence[Operator], names: _Names) -> tuple[str, ...]:
    """Keys of the outputs, and the names that stand for them from here on."""
    name = operator.name
    if isinstance(operator, Linear) and len(operator.parts) > 1:
        keys = {part.name: f"{name}.{part.name}" for part in operator.parts}
        names.alias.update(keys)
        names.groups[name] = tuple(keys.values())
        return names.groups[name]
    if isinstance(operator, Rope):
        names.alias.update(q=f"{name}.q", k=f"{name}.k")
        return (f"{name}.q", f"{name}.k")
    if isinstance(operator, Router):
        names.groups[name] = (f"{name}.weights", f"{name}.experts")
        return names.groups[name]
    if isinstance(operator, Dispatch):
        names.alias[name] = name
        names.groups[name] = (name, f"{name}.counts", f"{name}.route", f"{name}.weights")
        return names.groups[name]
    if isinstance(operator, GroupedLinear) and is_gated(operator, operators):
        names.groups[name] = (f"{name}.gate", f"{name}.up")
        return names.groups[name]
    names.alias[name] = name
    if isinstance(operator, Norm) and operator.inputs[0].endswith(RAW):
        names.alias[operator.inputs[0].removesuffix(RAW)] = name
    return (name,)


def is_gated(operator: GroupedLinear, operators: Sequence[Operator]) -> bool:
    """Whether a gated activation reads the experts' linear, so that it has two halves."""
    return any(
        isinstance(other, Activation) and other.gated and other.inputs == (operator.name,)
        for other in operators
    )


def _gate_shared(operator: Residual, operators: Sequence[Operator], names: _Names) -> None:
    """A step that multiplies the shared expert's output by its gate, before the residual that adds it."""
    gated = [other for other in operators if isinstance(other, Router) and other.shared_gate]
    if not gated or SHARED_OUTPUT not in operator.inputs:
        return
    read = names.alias[gated[0].inputs[0]]
    output = f"{SHARED_OUTPUT}.gated"
    names.steps.append(Step(GATE, (read, names.alias[SHARED_OUTPUT]), (output,), SHARED_OUTPUT))
    names.alias[SHARED_OUTPUT] = output
