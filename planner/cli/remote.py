"""`--server URL --key-file FILE`: the same questions, answered by a service; what is wrong is said as it is here."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import click

from cost_models.errors import BadInput, IllegalStrategy, Violation
from cost_models.specs.strategy import StrategyRequest

if TYPE_CHECKING:
    from api.client import PlannerClient
    from planner.cli.plan_input import AskedPlan
    from planner.formats.export import Export
    from planner.situation import Situation

SERVER_OPTIONS: Final = (
    click.option("--server", metavar="URL", help="Ask a planner-server instead; see docs/api.md."),
    click.option("--key-file", metavar="FILE", help="With --server: a file whose first key is sent."),
)


def server_of(given: Mapping[str, Any]) -> str | None:
    """The server of a command line; raises BadInput for a key without one."""
    if given["server"] is None and given["key_file"] is not None:
        raise BadInput("--key-file without --server; give the server that the key is for")
    server: str | None = given["server"]
    return server


@contextmanager
def asking(given: Mapping[str, Any]) -> Iterator["PlannerClient"]:
    """A client of the stated server; its problems become what the same question raises here."""
    try:
        from api.client import PlannerClient, ServiceError, read_client_key
    except ImportError:
        raise BadInput("httpx2 is not installed; install parallelism-planner[client]") from None

    key = read_client_key(Path(given["key_file"])) if given["key_file"] else ""
    with PlannerClient(given["server"], key) as client:
        try:
            yield client
        except ServiceError as error:
            raise _error_of(error.status, error.problem, error.detail) from None


def refuse_here(given: Mapping[str, Any], *options: str) -> None:
    """Raise BadInput where one of these options, which work on files of this machine, is given with --server."""
    for option in options:
        if given[option.removeprefix("--").replace("-", "_")] is not None:
            raise BadInput(f"{option} works on files of this machine; leave --server out")


def raise_problem(problem: Mapping[str, Any]) -> None:
    """Raise what a problem object of an item or a plan says."""
    status = int(problem.get("status", 422))
    raise _error_of(status, problem, str(problem.get("detail", "the server does not say why")))


def question_body(situation: "Situation") -> dict[str, Any]:
    """Model, cluster and job spelt out, so that the server needs no file of this machine."""
    return {
        "model": {"kind": "layers", "spec": situation.model.model_dump(mode="json")},
        "cluster": {"kind": "spec", "spec": situation.cluster.model_dump(mode="json")},
        "job": situation.job_request.model_dump(mode="json"),
    }


def source_body(situation: "Situation", strategy: StrategyRequest) -> dict[str, Any]:
    """A strategy in its situation, as calls about one plan take it."""
    return question_body(situation) | {"strategy": strategy.model_dump(mode="json", exclude_none=True)}


def plan_body(asked: "AskedPlan") -> dict[str, Any]:
    """A plan with the search that it came from and its runners-up, as the document that calls about plans take."""
    best, *others = (
        {"strategy": each.model_dump(mode="json", exclude_none=True)}
        for each in (asked.strategy, *asked.others)
    )
    request = question_body(asked.situation) | {"search": asked.search.model_dump(mode="json")}
    result = {"status": "feasible", "best": best, "alternatives": others}
    return {"plan": {"schema_version": 1, "id": "", "request": request, "result": result, "made_with": {}}}


def export_of(found: Mapping[str, Any]) -> "Export":
    """An export that a server made; raises BadInput for a file that would leave its folder."""
    from planner.formats.export import Export

    files = {str(each["path"]): str(each["content"]) for each in found["files"]}
    for name in files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or not path.name:
            raise BadInput(f"the server names the file {name[:80]!r}, outside the folder; do not use it")
    losses = tuple(str(loss) for loss in found["losses"])
    return Export(str(found["framework"]), str(found["version"]), files, str(found["script"]), losses)


def _error_of(status: int, problem: Mapping[str, Any], detail: str) -> Exception:
    """The error that the same question raises here; a server's own failure is one of ours."""
    code = str(problem.get("type") or problem.get("code") or "").rpartition("/")[2]
    if code == IllegalStrategy.code:
        faults = problem.get("errors") or problem.get("violations") or ()
        return IllegalStrategy(tuple(_violation(fault) for fault in faults))
    if status >= 500 and status != 503:
        return RuntimeError(f"the server failed: {detail}")
    return BadInput(detail)


def _violation(fault: Mapping[str, Any]) -> Violation:
    """One broken rule; the sentence names the nearest legal values already."""
    return Violation(str(fault.get("code") or fault.get("rule") or ""), str(fault.get("detail", "")))
