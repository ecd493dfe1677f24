"""`planner run --verify`: the layout on a small twin of the model, in fp32, beside one process, step by step."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist

from planner.executor.differences import Worst, compare_gradients, compare_parameters, rounding_names
from planner.executor.reference import train_reference
from planner.executor.request import RunOrder
from planner.executor.step import Trainer
from planner.executor.timeouts import set_timeouts, step_timeout_s
from planner.executor.twin import twin_of
from planner.executor.verification import SAFE_MARGIN, STEPS, Verification

REFERENCE_FILE: Final = "reference.pt"


def compare_with_one_process(order: RunOrder, run_dir: Path, device: torch.device) -> Verification:
    """Train the twin on all ranks and on rank 0 alone; collective, equal on every rank."""
    twin = twin_of(order)
    path = run_dir / REFERENCE_FILE
    if dist.get_rank() == 0:
        torch.save(reference_run(twin, device), path)
    dist.barrier()
    reference = torch.load(path, map_location=device, weights_only=True)
    seeded = twin.options.model_copy(update={"seed": reference["seed"]})
    trainer = Trainer(replace(twin, options=seeded), device)
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
            gradients.see(_relative(found.grad_norm, expected["grad_norm"]), "norm of all gradients")
    rounding = rounding_names([step["gradients"] for step in reference["steps"]])
    own = trainer.data_parallel.full_parameters()
    compare_parameters(own, reference["parameters"], rounding, parameters)
    _miss(names, set(reference["first_names"]), gradients)
    return _agree(loss, gradients, parameters)


def reference_run(order: RunOrder, device: torch.device) -> dict[str, Any]:
    """Losses and gradients of every step, and the parameters after the last, of one process, and its seed."""
    # As many micro-batches as all data-parallel ranks have together: batch statistics are a micro-batch's own.
    micro_batches = order.num_micro_batches * order.strategy.dp
    run = train_reference(order, device, micro_batches, STEPS, SAFE_MARGIN)
    return {
        "seed": run.order.options.seed,
        "steps": [
            {"loss": step.loss, "grad_norm": step.grad_norm, "gradients": step.gradients}
            for step in run.steps
        ],
        "parameters": run.parameters,
        "first_names": sorted(run.first_names),
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
