"""One layer: its operators in order over tensors by name, with recomputation of all of it or of some operators."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from planner.executor.model.operators.routing import RouterModule
from planner.executor.model.recompute import run_again
from planner.executor.model.regrow import GivenUp
from planner.executor.model.segments import Segment
from planner.executor.model.tensor_parallel import TensorParallel, divide, enter, spread, unite
from planner.executor.model.wiring import DIVIDE, ENTER, GATE, IDS, INPUT, JOIN, SPREAD, UNITE


class Block(nn.Module):
    """A layer of one kind. Modules are named like the operators; tensors are handed on by key."""

    def __init__(
        self,
        modules: dict[str, nn.Module],
        segments: Sequence[Segment],
        tp: TensorParallel,
        kept: str = "",
    ) -> None:
        """`kept`: key of a tensor that is handed out beside the output."""
        super().__init__()
        self.kept = kept
        for name, module in modules.items():
            self.add_module(name, module)
        passages = {ENTER: enter, DIVIDE: divide, UNITE: unite, SPREAD: spread}
        self.calls: dict[str, Callable[..., Any]] = {
            **modules,
            **{name: partial(passage, tp=tp) for name, passage in passages.items()},
            JOIN: joined,
        }
        router = modules.get("router")
        if isinstance(router, RouterModule):
            self.calls[GATE] = router.gate
        self.segments = tuple(segments)
        self.output = self.segments[-1].steps[-1].outputs[0]
        self.full_recompute = False
        self.random = False
        """Whether a recomputation has to draw the same random numbers (an active dropout)."""

    def forward(self, x: Tensor, ids: Tensor | None = None) -> Tensor | tuple[Tensor, ...]:
        """The layer's output (and what it hands out beside it); under full recompute only x is kept.

        A multi-token-prediction layer embeds the tokens `ids` [B, S].
        """
        if self.full_recompute and self.training:
            return run_again(self._run, (x,), self.random)[0]
        found = self._run(x, ids)
        return found if self.kept else found[0]

    def _run(self, x: Tensor, ids: Tensor | None = None) -> tuple[Tensor, ...]:
        held: dict[str, Any] = {INPUT: x, IDS: ids}
        recomputes = self.training and not self.full_recompute
        given_up = GivenUp()
        promises = recomputes and any(segment.given_up for segment in self.segments)
        with given_up.hooks() if promises else nullcontext():
            for segment in self.segments:
                if segment.again and recomputes:
                    self._again(segment, held, given_up)
                else:
                    self._steps(segment, held, given_up)
        return (held[self.output], held[self.kept]) if self.kept else (held[self.output],)

    def _again(self, segment: Segment, held: dict[str, Any], given_up: GivenUp) -> None:
        """Run a segment keeping its inputs only; what it gives up is made from them again."""

        def run(*tensors: Any) -> tuple[Any, ...]:
            inside: dict[str, Any] = dict(zip(segment.inputs, tensors, strict=True))
            self._steps(segment, inside, GivenUp())
            return tuple(inside[key] for key in segment.outputs)

        inputs = tuple(held[key] for key in segment.inputs)
        outputs = run_again(run, inputs, self.random)
        if segment.given_up:
            kept = tuple(each.detach() if isinstance(each, Tensor) else each for each in inputs)
            places = [segment.outputs.index(key) for key in segment.given_up]

            def make() -> tuple[Tensor, ...]:
                made = run(*kept)
                return tuple(made[place] for place in places)

            given_up.add(make, [outputs[place] for place in places])
        held.update(zip(segment.outputs, outputs, strict=True))
        self._drop({key for dropped in segment.dropped for key in dropped}, held, given_up)

    def _steps(self, segment: Segment, held: dict[str, Any], given_up: GivenUp) -> None:
        for step, dropped in zip(segment.steps, segment.dropped, strict=True):
            found = self.calls[step.module](*[held[key] for key in step.inputs])
            if isinstance(found, tuple):
                held.update(zip(step.outputs, found, strict=True))
            else:
                held[step.outputs[0]] = found
            if step.module == ENTER and given_up.places:
                given_up.follow(held[step.inputs[0]], held[step.outputs[0]], self.calls[ENTER])
            self._drop(dropped, held, given_up)

    def _drop(self, keys: Iterable[str], held: dict[str, Any], given_up: GivenUp) -> None:
        for key in keys:
            tensor = held.pop(key, None)
            if isinstance(tensor, Tensor) and given_up.places:
                given_up.forget(tensor)


def joined(*tensors: Tensor) -> Tensor:
    """Features side by side."""
    return torch.cat(tensors, -1)
