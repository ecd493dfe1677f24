"""What a profile is asked for: the device's side, and the model whose layers come first."""

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from cost_models.errors import BadInput
from cost_models.specs.base import Frozen
from planner.request import PlanRequest

MOST_MINUTES = 24 * 60.0


class ProfiledModel(Frozen):
    """A model whose own layers are measured, and the micro-batch and tensor-parallel sizes of its shapes."""

    request: PlanRequest
    micro_batches: tuple[Annotated[int, Field(ge=1)], ...] = (1,)
    tp: tuple[Annotated[int, Field(ge=1)], ...] = (1,)


class ProfileOrder(Frozen):
    """One run of the profiler. Without a model it measures a grid of shapes alone.

    `processes` measure side by side in this part; `what` says which cases it has.
    """

    precision: Literal["fp32", "tf32", "bf16", "fp16"] = "bf16"
    budget_s: Annotated[float, Field(gt=0, le=60 * MOST_MINUTES)] = 600.0
    tolerance: Annotated[float, Field(gt=0, lt=1)] = 0.05
    processes: Annotated[int, Field(ge=1)] = 1
    what: Literal["all", "kernels", "collectives"] = "all"
    grid: bool = True
    models: tuple[ProfiledModel, ...] = ()
    store: str = ""
    """File over which the processes find each other."""

    def write(self, path: Path) -> None:
        """Write it for the workers."""
        path.write_text(self.model_dump_json() + "\n", encoding="utf-8")


def read_order(path: Path) -> ProfileOrder:
    """The order that `write` wrote; raises BadInput for any other file."""
    try:
        return ProfileOrder.model_validate(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, ValidationError) as error:
        what = " ".join(str(error).split())[:200]
        raise BadInput(
            f"{path} is no order of the profiler ({what}); start it with `planner profile`"
        ) from None
