"""Sizes: how many devices for so many tokens in so many days, in bounded time."""

from typing import Annotated, Any, Final

from pydantic import Field, StrictFloat, StrictInt

from planner.sizing.request import SizeRequest

MAX_SECONDS: Final = 300.0


class SizesRequest(SizeRequest):
    """A size table; what `max_seconds` for all of it leave out is said in the answer."""

    max_seconds: Annotated[StrictFloat | StrictInt, Field(gt=0, le=MAX_SECONDS)] = 60.0


def size_table(request: SizesRequest) -> dict[str, Any]:
    """The object of `planner size --json`; raises BadInput."""
    from planner.request import LayersModel
    from planner.situation import resolve_model
    from planner.sizing import size

    spec = resolve_model(request.model, "plain")
    model = LayersModel(spec=spec.model_dump(mode="json"))
    report = size(request.model_copy(update={"model": model}), jobs=1, within_s=float(request.max_seconds))
    return report.to_json()
