"""From operators that name their inputs to steps that read and write tensors by one key each.

Conventions of the readers (cost_models.readers.blocks): a linear of several parts writes one tensor a part; `q_raw` is
the part `q` before its norm; the rotary embedding reads and rewrites queries and keys; a gated activation reads both
parts of its linear.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from cost_models.operators import Activation, Combine, Dispatch, Linear, LmHead, Norm, Rope, Router
from cost_models.operators.base import Operator

INPUT = "x"
"""Key of the layer's input."""

ENTER = "enter"
"""Not an operator: a tensor enters the tensor-parallel region."""

RAW = "_raw"


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
        if name in self.groups:
            return self.groups[name]
        return (self.alias[name.removesuffix(RAW)],)

    def enter(self, key: str, scope_of: str) -> str:
        """The key inside the region; entered once, whoever reads it."""
        inside = f"{key}@tp"
        if inside not in self.entered:
            self.entered.add(inside)
            self.steps.append(Step(ENTER, (key,), (inside,), scope_of))
        return inside


def wire(operators: Sequence[Operator], tensor_parallel: bool) -> tuple[Step, ...]:
    """Steps in order; the last one's output is the layer's."""
    names = _Names()
    for operator in operators:
        inputs = _inputs(operator, names)
        if tensor_parallel:
            inputs = _entered(operator, inputs, names)
        outputs = _outputs(operator, names)
        names.steps.append(Step(operator.name, inputs, outputs, operator.name))
    return tuple(names.steps)


def _inputs(operator: Operator, names: _Names) -> tuple[str, ...]:
    if isinstance(operator, Rope):
        if operator.inputs == (
            "q_up",
            "kv_down",
        ):  # latent attention: shared rotated key beside each head's own
            return (names.alias["q_up"], names.alias["kv_down"], names.alias["k_nope"])
        return (names.alias["q"], names.alias["k"])
    if isinstance(operator, Dispatch):
        return (*(key for name in operator.inputs for key in names.keys(name)), *names.groups["router"])
    if isinstance(operator, Combine):
        return (*(key for name in operator.inputs for key in names.keys(name)), *names.groups["dispatch"][1:])
    return tuple(key for name in operator.inputs for key in names.keys(name))


def _entered(operator: Operator, inputs: tuple[str, ...], names: _Names) -> tuple[str, ...]:
    """Inputs of column-parallel linears and heads enter the region; a latent's shared key does too."""
    column = isinstance(operator, Linear) and operator.split == "column" and not operator.per_sample
    if column or isinstance(operator, LmHead):
        return tuple(names.enter(key, operator.name) for key in inputs)
    if isinstance(operator, Rope) and operator.inputs == ("q_up", "kv_down"):
        return (inputs[0], names.enter(inputs[1], operator.name), inputs[2])
    return inputs


def _outputs(operator: Operator, names: _Names) -> tuple[str, ...]:
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
        names.groups[name] = (name, f"{name}.counts", f"{name}.order", f"{name}.weights")
        return names.groups[name]
    names.alias[name] = name
    if isinstance(operator, Norm) and operator.inputs[0].endswith(RAW):
        names.alias[operator.inputs[0].removesuffix(RAW)] = name
    if isinstance(operator, Activation):
        return (name,)
    return (name,)
