"""One layer: its operators in order over tensors by name, with recomputation of all of it or of some operators."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from planner.executor.model.operators.routing import RouterModule
from planner.executor.model.recompute import run_again
from planner.executor.model.tensor_parallel import TensorParallel, enter
from planner.executor.model.wiring import ENTER, GATE, INPUT, Step


@dataclass(frozen=True, slots=True)
class Segment:
    """Steps that run together; `again`: they keep their inputs only and run again before their backward."""

    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dropped: tuple[tuple[str, ...], ...]
    """Keys that nobody reads after each step, so that a tensor lives no longer than its last reader."""
    again: bool


class Block(nn.Module):
    """A layer of one kind. Modules are named like the operators; tensors are handed on by key."""

    def __init__(
        self, modules: dict[str, nn.Module], segments: Sequence[Segment], tp: TensorParallel
    ) -> None:
        super().__init__()
        for name, module in modules.items():
            self.add_module(name, module)
        self.calls: dict[str, Callable[..., Any]] = {**modules, ENTER: partial(enter, tp=tp)}
        router = modules.get("router")
        if isinstance(router, RouterModule):
            self.calls[GATE] = router.gate
        self.segments = tuple(segments)
        self.output = self.segments[-1].outputs[0]
        self.full_recompute = False
        self.random = False
        """Whether a recomputation has to draw the same random numbers (an active dropout)."""

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output; under full recompute only x is kept."""
        if self.full_recompute and self.training:
            return run_again(self._run, (x,), self.random)[0]
        return self._run(x)[0]

    def _run(self, x: Tensor) -> tuple[Tensor, ...]:
        held = {INPUT: x}
        for segment in self.segments:
            self._segment(segment, held)
        return (held[self.output],)

    def _segment(self, segment: Segment, held: dict[str, Tensor]) -> None:
        if not (segment.again and self.training):
            self._steps(segment, held)
            return

        def run(*tensors: Tensor) -> tuple[Tensor, ...]:
            inside = dict(zip(segment.inputs, tensors, strict=True))
            self._steps(segment, inside)
            return tuple(inside[key] for key in segment.outputs)

        inputs = tuple(held[key] for key in segment.inputs)
        held.update(zip(segment.outputs, run_again(run, inputs, self.random), strict=True))
        for key in {key for dropped in segment.dropped for key in dropped}:
            held.pop(key, None)

    def _steps(self, segment: Segment, held: dict[str, Tensor]) -> None:
        for step, dropped in zip(segment.steps, segment.dropped, strict=True):
            found = self.calls[step.module](*[held[key] for key in step.inputs])
            if isinstance(found, tuple):
                held.update(zip(step.outputs, found, strict=True))
            else:
                held[step.outputs[0]] = found
            for key in dropped:
                held.pop(key, None)


class ChunkedHead(Block):
    """The last layer where logits exist for a share of the positions at a time: given targets, it returns the sum of
    their losses, and makes each share's logits again for its backward."""

    def __init__(
        self,
        modules: dict[str, nn.Module],
        segments: Sequence[Segment],
        tp: TensorParallel,
        chunks: int,
        loss: Callable[[Tensor, Tensor], Tensor],
    ) -> None:
        """`segments` end before the last two modules, the output matrix and the soft cap."""
        super().__init__(modules, segments, tp)
        self.chunks = chunks
        self.loss_of = loss
        self.tail = tuple(modules)[-2:]

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        """All logits, or the sum of the losses."""
        hidden = self._run(x)[0]
        if targets is None:
            return self._logits(hidden)
        rows = hidden.flatten(0, 1).chunk(self.chunks)
        wanted = targets.flatten().chunk(self.chunks)
        losses = [run_again(self._loss, pair, random=False)[0] for pair in zip(rows, wanted, strict=True)]
        return torch.stack(losses).sum()

    def _logits(self, hidden: Tensor) -> Tensor:
        for name in self.tail:
            hidden = self.calls[name](hidden)
        return hidden

    def _loss(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, ...]:
        return (self.loss_of(self._logits(hidden), targets),)


def segments_of(steps: Sequence[Step], again: frozenset[str]) -> tuple[Segment, ...]:
    """Runs of consecutive steps that are recomputed together, and the runs between them."""
    runs: list[list[Step]] = []
    for step in steps:
        here = step.scope_of in again
        if runs and (runs[-1][-1].scope_of in again) == here:
            runs[-1].append(step)
        else:
            runs.append([step])
    found, start = [], 0
    for run in runs:
        stop = start + len(run)
        found.append(_segment(steps, start, stop, run[0].scope_of in again))
        start = stop
    return tuple(found)


def _segment(steps: Sequence[Step], start: int, stop: int, again: bool) -> Segment:
    run, later = steps[start:stop], steps[stop:]
    read_later = {key for step in later for key in step.inputs}
    final = steps[-1].outputs[0]
    written = {key for step in run for key in step.outputs}
    inputs = tuple(dict.fromkeys(key for step in run for key in step.inputs if key not in written))
    outputs = tuple(
        key for step in run for key in step.outputs if key in read_later or (key == final and not later)
    )
    dropped = []
    for index, step in enumerate(run):
        after = {key for other in run[index + 1 :] for key in other.inputs} | read_later | {final}
        dropped.append(tuple(sorted({key for key in (*step.inputs, *step.outputs) if key not in after})))
    return Segment(tuple(run), inputs, outputs, tuple(dropped), again)
