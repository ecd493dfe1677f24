"""What is known by name, with provenance."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from fastapi.responses import JSONResponse

from api.answers import AccuracyBody, ProfilesBody
from api.deps import AccuracyDep, WorkDep
from api.errors import Problem
from api.schemas import ItemsBody
from api.strict_route import StrictRoute
from cost_models.errors import BadInput
from planner.answers import finite

router = APIRouter(prefix="/v1", tags=["catalog"], route_class=StrictRoute)

Kind = Literal["devices", "clusters", "models", "engines"]


@router.get("/catalog/{kind}", response_model=ItemsBody)
async def list_catalog(kind: Kind, work: WorkDep) -> JSONResponse:
    """Short descriptions of everything of one kind."""
    from planner.catalog import list_entries

    return JSONResponse({"items": finite(await work.evaluate(lambda: list_entries(kind)))})


@router.get("/catalog/{kind}/{name}", response_model=dict[str, Any])
async def read_catalog(kind: Kind, name: Annotated[str, Path(max_length=100)], work: WorkDep) -> JSONResponse:
    """One entry, each figure with its unit, kind and source."""
    from planner.catalog import describe_entry

    try:
        return JSONResponse(finite(await work.evaluate(lambda: describe_entry(kind, name))))
    except BadInput as error:
        raise Problem(404, "not_found", error.detail) from None


@router.get("/profiles", response_model=ProfilesBody)
async def read_profiles(work: WorkDep) -> JSONResponse:
    """Which data predictions stand on: the hash of all profile files, and what they describe."""
    return JSONResponse(await work.evaluate(_profiles))


@router.get("/accuracy", response_model=AccuracyBody)
async def read_accuracy(accuracy: AccuracyDep) -> JSONResponse:
    """Predictions beside published runs, as `planner validate --json`; the first answer takes seconds."""
    return JSONResponse(await accuracy.read())


def _profiles() -> dict[str, Any]:
    from cost_models.profiles import list_clusters, list_devices, list_models, profiles_sha256
    from planner.version import planner_version

    return {
        "profiles_sha256": profiles_sha256(),
        "planner_version": planner_version(),
        "devices": list(list_devices()),
        "clusters": list(list_clusters()),
        "models": list(list_models()),
    }
