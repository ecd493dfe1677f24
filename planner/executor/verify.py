"""`planner run --verify`: the layout on a small twin of the model, in fp32, beside one process, step by step."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

from planner.executor.data import Sampler, open_source
from planner.executor.differences import Worst, compare_gradients, compare_parameters, rounding_names
from planner.executor.reference import Reference
from planner.executor.request import RunOrder
from planner.executor.step import Trainer
from planner.executor.timeouts import set_timeouts, step_timeout_s
from planner.executor.twin import twin_of
from planner.executor.verification import STEPS, Verification

REFERENCE_FILE: Final = "reference.pt"


def compare_with_one_process(order: RunOrder, run_dir: Path, device: torch.device) -> Verification:
    """Train the twin on all ranks and on rank 0 alone; collective, equal on every rank."""
    twin = twin_of(order)
    path = run_dir / REFERENCE_FILE
    if dist.get_rank() == 0:
        torch.save(reference_run(twin, device), path)
    dist.barrier()
    reference = torch.load(path, map_location=device, weights_only=True)
    trainer = Trainer(twin, device)
    set_timeouts(step_timeout_s(order))
    loss, gradients, parameters = Worst(), Worst(), Worst()
    names: set[str] = set()
    for number, expected in enumerate(reference["steps"]):
        found = trainer.step_with_gradients()
        loss.see(_relative(found.loss, expected["loss"]), "loss")
        names |= set(found.gradients)
        if number == 0:
            # Later gradients are those of other parameters: Adam makes a whole step of a tiny gradient's rounding.
            compare_gradients(found.gradients, expected["gradients"], gradients)
    rounding = rounding_names([step["gradients"] for step in reference["steps"]])
    own = trainer.data_parallel.full_parameters()
    compare_parameters(own, reference["parameters"], rounding, parameters)
    _miss(names, set(reference["first_names"]), gradients)
    return _agree(loss, gradients, parameters)


def reference_run(order: RunOrder, device: torch.device) -> dict[str, Any]:
    """Losses and gradients of every step, and the parameters after the last, of one process."""
    reference = Reference(order, device)
    job = order.situation.job
    sampler = Sampler(open_source(order), job.global_batch, (0, 1), order.options.first_sample)
    steps = []
    for _ in range(STEPS):
        # As many micro-batches as all data-parallel ranks have together: batch statistics are a micro-batch's own.
        batches = sampler.micro_batches(order.num_micro_batches * order.strategy.dp)
        on_device = [replace(b, inputs=b.inputs.to(device), targets=b.targets.to(device)) for b in batches]
        step = reference.step(on_device)
        steps.append({"loss": step.loss, "grad_norm": step.grad_norm, "gradients": step.gradients})
    return {
        "steps": steps,
        "parameters": reference.parameters(),
        "first_names": sorted(reference.first_names),
    }


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
