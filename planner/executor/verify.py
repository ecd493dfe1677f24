"""`planner run --verify`: the layout on a small twin of the model, in fp32, beside one process, step by step."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from planner.executor.data import Sampler, open_source
from planner.executor.reference import Reference
from planner.executor.request import RunOrder
from planner.executor.step import Trainer
from planner.executor.twin import twin_of
from planner.executor.verification import STEPS, Verification

REFERENCE_FILE: Final = "reference.pt"
NEGLIGIBLE: Final = 1e-4
"""A tensor whose largest element is below this share of the largest of all is compared with that share instead of
with itself, as it ends where the others' rounding begins."""

ROUNDING: Final = 1e-6
"""A gradient below this share of the largest is nothing but rounding (a key's bias moves all scores of a query alike):
Adam divides it by its own size, so the parameter itself says nothing."""


@dataclass(slots=True)
class Worst:
    """The largest difference so far, and whose it is."""

    value: float = 0.0
    name: str = ""

    def see(self, value: float, name: str) -> None:
        """Keep the larger one; what is no number is larger than any."""
        if not value <= self.value:
            self.value, self.name = value, name


def compare_with_one_process(order: RunOrder, run_dir: Path, device: torch.device) -> Verification:
    """Train the twin on all ranks and on rank 0 alone; collective, equal on every rank."""
    twin = twin_of(order)
    path = run_dir / REFERENCE_FILE
    if dist.get_rank() == 0:
        torch.save(reference_run(twin, device), path)
    dist.barrier()
    reference = torch.load(path, map_location=device, weights_only=True)
    trainer = Trainer(twin, device)
    loss, gradients, parameters = Worst(), Worst(), Worst()
    names: set[str] = set()
    for expected in reference["steps"]:
        found = trainer.step_with_gradients()
        loss.see(_relative(found.loss, expected["loss"]), "loss")
        _compare(found.gradients, expected["gradients"], gradients)
        names |= set(found.gradients)
    still = _without_gradient(reference["steps"])
    moved = {n: p for n, p in trainer.data_parallel.full_parameters().items() if n not in still}
    _compare(moved, reference["parameters"], parameters)
    _miss(names, set(reference["parameters"]), gradients)
    return _agree(loss, gradients, parameters)


def reference_run(order: RunOrder, device: torch.device) -> dict[str, Any]:
    """Losses and gradients of every step, and the parameters after the last, of one process."""
    reference = Reference(order, device)
    job = order.situation.job
    sampler = Sampler(open_source(order), job.global_batch, (0, 1), order.options.first_sample)
    steps = []
    for _ in range(STEPS):
        batches = sampler.micro_batches(order.num_micro_batches)
        on_device = [replace(b, inputs=b.inputs.to(device), targets=b.targets.to(device)) for b in batches]
        step = reference.step(on_device)
        steps.append({"loss": step.loss, "grad_norm": step.grad_norm, "gradients": step.gradients})
    return {"steps": steps, "parameters": reference.parameters()}


def _compare(found: Mapping[str, Tensor], expected: Mapping[str, Tensor], worst: Worst) -> None:
    """Largest difference of each tensor over its largest element."""
    floor = NEGLIGIBLE * max(float(tensor.abs().max()) for tensor in expected.values() if tensor.numel())
    for name, tensor in found.items():
        if name not in expected or expected[name].shape != tensor.shape:
            worst.see(float("inf"), f"{name} (shape {tuple(tensor.shape)})")
            continue
        scale = max(float(expected[name].abs().max()), floor)
        worst.see(float((tensor - expected[name]).abs().max()) / scale if scale else 0.0, name)


def _without_gradient(steps: list[dict[str, Any]]) -> set[str]:
    """Names of parameters whose gradient was nothing but rounding in every step."""
    still: set[str] = set(steps[0]["gradients"])
    for step in steps:
        sizes = {
            name: float(tensor.abs().max()) for name, tensor in step["gradients"].items() if tensor.numel()
        }
        still &= {name for name, size in sizes.items() if size < ROUNDING * max(sizes.values())}
    return still


def _relative(found: float, expected: float) -> float:
    return abs(found - expected) / max(abs(expected), 1e-30)


def _miss(names: set[str], expected: set[str], worst: Worst) -> None:
    """A tensor that no rank has is an infinite difference; collective."""
    everywhere: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, names)
    for name in sorted(expected - set().union(*everywhere)):
        worst.see(float("inf"), f"{name} (on no rank)")


def _agree(loss: Worst, gradients: Worst, parameters: Worst) -> Verification:
    """The worst of all ranks; collective."""
    everywhere: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, (loss, gradients, parameters))
    total = (Worst(), Worst(), Worst())
    for own in everywhere:
        for kept, seen in zip(total, own, strict=True):
            kept.see(seen.value, seen.name)
    names = {"gradients": total[1].name, "parameters": total[2].name}
    return Verification(total[0].value, total[1].value, total[2].value, STEPS, names)
