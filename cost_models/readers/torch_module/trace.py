"""Runs a module on tensors without storage, at several lengths, and says what each kind of layer costs.

One layer of each kind (and input shape) runs; the others hand on its output. Routed experts are left out of the
run, since where tokens go depends on data: their cost follows from their shapes (see assemble.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cost_models.readers.torch_module.build import TookTooLong
from cost_models.readers.torch_module.experts import Experts
from cost_models.readers.torch_module.handed import measure, no_packing, pass_on, pass_on_pair, shapes
from cost_models.readers.torch_module.ledger import Cost, Ledger, recording
from cost_models.readers.torch_module.quiet import one_line, quietly
from cost_models.readers.torch_module.structure import LayerModule, Structure

if TYPE_CHECKING:
    from torch import nn

RUN_LIMIT_S: Final = 20.0
TRACE_LIMIT_S: Final = 60.0
"""Of all runs of one model together; what was not run by then is estimated, and said to be."""
Key = tuple[object, ...]
GAP: Final = "gap"
"""First word of the units between layers; the second is how many layer calls came before."""
TABLE: Final = ("table",)
HEAD: Final = ("head",)


@dataclass(frozen=True, slots=True)
class Call:
    """A layer was called: its index in the structure, its kind, and which of its input shapes this is."""

    layer: int
    kind: str
    variant: int


@dataclass(slots=True)
class Run:
    """One run: calls in order, and the cost of every unit at this length."""

    length: int
    calls: tuple[Call, ...]
    costs: dict[Key, Cost]


@dataclass(frozen=True)
class Prepared:
    """What a run needs to know of a module."""

    model: nn.Module
    structure: Structure
    experts: Mapping[int, tuple[Experts, ...]]
    """Routed experts of a layer, by the identity of its module."""
    table: nn.Module | None
    head: nn.Module | None
    until: float = field(default_factory=lambda: time.monotonic() + TRACE_LIMIT_S)
    """When the last run must be over (time.monotonic)."""


@dataclass(slots=True)
class _State:
    """Of one run: the calls so far and what each kind handed on."""

    ledger: Ledger
    calls: list[Call] = field(default_factory=list)
    outputs: dict[tuple[str, tuple[object, ...]], Any] = field(default_factory=dict)
    shapes: dict[str, list[tuple[object, ...]]] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    depth: int = 0


def run(prepared: Prepared, inputs: Sequence[Any], named: Mapping[str, Any], length: int, batch: int) -> Run:
    """One run; raises whatever the module raises outside its layers, TookTooLong past the limit."""
    import torch

    held = {tensor.untyped_storage()._cdata for tensor in _held(prepared.model)}
    held |= {
        value.untyped_storage()._cdata
        for value in (*inputs, *named.values())
        if hasattr(value, "untyped_storage")
    }
    width = next((p.element_size() for p in prepared.model.parameters() if p.is_floating_point()), 2)
    seconds = min(RUN_LIMIT_S, prepared.until - time.monotonic())
    if seconds <= 0:
        raise TookTooLong
    ledger = Ledger(batch, held, seconds, width)
    state = _State(ledger)
    with ExitStack() as stack:
        stack.enter_context(quietly())
        stack.enter_context(_replaced(prepared, state))
        stack.enter_context(no_packing())
        stack.enter_context(torch.device("meta"))
        stack.enter_context(recording(ledger))
        stack.enter_context(ledger.unit((GAP, 0)))
        try:
            prepared.model(*inputs, **named)
        except Exception as error:
            # What a layer did not hand on is missed later; the layer's own failure says why.
            reasons = [cost.failed for cost in ledger.costs.values() if cost.failed]
            raise RuntimeError(reasons[0] if reasons else one_line(error)) from error
    return Run(length, tuple(state.calls), ledger.costs)


def _held(model: nn.Module) -> Iterator[Any]:
    yield from model.parameters()
    yield from model.buffers()


@contextmanager
def _replaced(prepared: Prepared, state: _State) -> Iterator[None]:
    """Layers, experts, table and head watched while the module runs; everything as before afterwards."""
    changed: list[nn.Module] = []
    seen: set[int] = set()
    wanted: list[tuple[nn.Module, Callable[..., Any]]] = []
    for index, layer in enumerate(prepared.structure.layers):
        if id(layer.module) not in seen:
            seen.add(id(layer.module))
            wanted += _of_layer(index, layer, prepared.experts.get(id(layer.module), ()), state)
    for module, key in ((prepared.table, TABLE), (prepared.head, HEAD)):
        if module is not None:
            wanted.append((module, _apart(module, key, state)))
    for module, forward in wanted:
        if "forward" not in vars(module):
            object.__setattr__(module, "forward", forward)
            changed.append(module)
    try:
        yield
    finally:
        for module in changed:
            vars(module).pop("forward", None)


def _of_layer(
    index: int, layer: LayerModule, experts: Sequence[Experts], state: _State
) -> Iterator[tuple[nn.Module, Callable[..., Any]]]:
    """What one layer's experts, attention modules and the layer itself run instead of their forward."""
    for each in experts:
        if not each.is_list:
            yield each.module, pass_on
    for part in layer.module.modules():
        if part is not layer.module and hasattr(part, "is_causal"):
            yield part, _attending(part, state)
    blocks = [each.block for each in experts if each.is_list]
    for module in _callable(layer.module):
        yield module, _watched(module, index, layer, blocks, state)


def _callable(module: nn.Module) -> list[nn.Module]:
    """The module itself, or the entries of a list, which has no forward of its own."""
    from torch import nn

    if isinstance(module, nn.ModuleList | nn.ModuleDict):
        return [inner for child in module.children() for inner in _callable(child)]
    return [module]


def _watched(
    module: nn.Module, index: int, layer: LayerModule, blocks: Sequence[nn.Module], state: _State
) -> Callable[..., Any]:
    """A layer's forward that runs once a kind and input shape; later layers of the kind hand on the same output."""
    original = module.forward
    whole = module is layer.module
    kind = layer.kind

    def forward(*args: Any, **kwargs: Any) -> Any:
        if state.depth:  # a layer inside a layer belongs to the outer one
            return original(*args, **kwargs)
        state.ledger.check_time()
        shape = (id(module) if not whole else 0, *shapes((args, kwargs)))
        variants = state.shapes.setdefault(kind, [])
        if whole and shape not in variants:
            variants.append(shape)
        variant = variants.index(shape) if whole else 0
        if whole or not state.calls or state.calls[-1].layer != index:
            state.calls.append(Call(index, kind, variant))
        out = state.outputs.get((kind, shape))
        if out is None:
            # Entries of a list run one by one; only those of the first such layer speak for the kind.
            speaks = state.first.setdefault(kind, index) == index or whole
            key = (kind, variant) if speaks else ("again", index)
            out = _first_run(original, args, kwargs, key, blocks, state)
            state.outputs[kind, shape] = out
        state.ledger.reopen((GAP, len(state.calls)))
        return out

    return forward


def _first_run(
    original: Callable[..., Any],
    args: Any,
    kwargs: Any,
    key: Key,
    blocks: Sequence[nn.Module],
    state: _State,
) -> Any:
    """The layer's own forward; where that depends on data its routed blocks, then all of it, are passed by."""
    state.depth += 1
    reason = ""
    try:
        for bypass in (None, pass_on, pass_on_pair):
            if bypass is not None and not blocks:
                break
            with state.ledger.unit(key) as cost, _bypassed(blocks, bypass):
                try:
                    out = original(*args, **kwargs)
                    measure(cost, out, state.ledger.batch)
                    return out
                except Exception as error:
                    reason = one_line(error)
            state.ledger.costs[key] = Cost()
        cost = state.ledger.costs[key]
        cost.failed = reason
        out = pass_on(*args, **kwargs)
        measure(cost, out, state.ledger.batch)
        return out
    finally:
        state.depth -= 1


@contextmanager
def _bypassed(blocks: Sequence[nn.Module], forward: Callable[..., Any] | None) -> Iterator[None]:
    if forward is None:
        yield
        return
    before = [vars(block).get("forward") for block in blocks]
    for block in blocks:
        object.__setattr__(block, "forward", forward)
    try:
        yield
    finally:
        for block, old in zip(blocks, before, strict=True):
            vars(block).pop("forward", None)
            if old is not None:
                object.__setattr__(block, "forward", old)


def _attending(module: nn.Module, state: _State) -> Callable[..., Any]:
    original = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        state.ledger.attending.append(module)
        try:
            return original(*args, **kwargs)
        finally:
            state.ledger.attending.pop()

    return forward


def _apart(module: nn.Module, key: Key, state: _State) -> Callable[..., Any]:
    """The token table and the head have operators of their own."""
    original = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        if state.depth:
            return original(*args, **kwargs)
        with state.ledger.unit(key):
            return original(*args, **kwargs)

    return forward


def timed(work: Callable[[], Run]) -> tuple[Run | None, str, float]:
    """A run, or why there is none, and its seconds."""
    start = time.monotonic()
    try:
        return work(), "", time.monotonic() - start
    except TookTooLong:
        return (
            None,
            f"it took more than {RUN_LIMIT_S:g} s (all runs: {TRACE_LIMIT_S:g} s)",
            time.monotonic() - start,
        )
    except Exception as error:
        return None, one_line(error), time.monotonic() - start
