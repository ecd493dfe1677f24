"""Inspections: what a model is made of."""

from typing import Annotated, Any

from pydantic import Field, StrictInt

from cost_models.specs.base import Frozen
from cost_models.specs.job import MAX_SEQ_LEN
from planner.request import ModelInput
from planner.situation import resolve_model


class InspectionRequest(Frozen):
    """A model, and the tokens of a sequence for its FLOPs."""

    model: ModelInput
    seq_len: Annotated[StrictInt, Field(ge=1, le=MAX_SEQ_LEN)] | None = None


def inspect(request: InspectionRequest) -> dict[str, Any]:
    """The object of `planner inspect --json`; raises BadInput."""
    from planner.inspect_model import inspect_model

    return inspect_model(resolve_model(request.model, "plain"), request.seq_len)
