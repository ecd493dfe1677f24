"""What is known by name, with provenance; every answer has an entity tag, as it changes with the program only."""

from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Path, Request, Response

from api.answers import AccuracyBody, ProfilesBody
from api.deps import AccuracyDep, WorkDep
from api.errors import Problem
from api.routes.answer import encoded, tagged
from api.schemas import ItemsBody
from api.strict_route import StrictRoute
from cost_models.errors import BadInput

router = APIRouter(prefix="/v1", tags=["catalog"], route_class=StrictRoute)

Kind = Literal["devices", "clusters", "models", "engines"]
SAME: Final[dict[int | str, dict[str, Any]]] = {304: {"description": "Not changed"}}


@router.get("/catalog/{kind}", response_model=ItemsBody, responses=SAME)
async def list_catalog(kind: Kind, http: Request, work: WorkDep) -> Response:
    """Short descriptions of everything of one kind."""
    from planner.catalog import list_entries

    return tagged(http, await work.evaluate(lambda: encoded({"items": list_entries(kind)})))


@router.get("/catalog/{kind}/{name}", response_model=dict[str, Any], responses=SAME)
async def read_catalog(
    kind: Kind, name: Annotated[str, Path(max_length=100)], http: Request, work: WorkDep
) -> Response:
    """One entry, each figure with its unit, kind and source."""
    from planner.catalog import describe_entry

    try:
        return tagged(http, await work.evaluate(lambda: encoded(describe_entry(kind, name))))
    except BadInput as error:
        raise Problem(404, "not_found", error.detail) from None


@router.get("/profiles", response_model=ProfilesBody, responses=SAME)
async def read_profiles(http: Request, work: WorkDep) -> Response:
    """Which data predictions stand on: the hash of all profile files, and what they describe."""
    return tagged(http, await work.evaluate(lambda: encoded(_profiles())))


@router.get("/accuracy", response_model=AccuracyBody, responses=SAME)
async def read_accuracy(http: Request, accuracy: AccuracyDep, work: WorkDep) -> Response:
    """Predictions beside published runs, as `planner validate --json`; the first answer takes seconds."""
    found = await accuracy.read()
    return tagged(http, await work.evaluate(lambda: encoded(found)))


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
