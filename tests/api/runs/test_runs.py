"""Runs over HTTP: launched, watched, measured, ended, refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from api.runs.processes import processes_of_run
from planner.validation.predict import outcome_of
from planner.validation.rows import read_runs
from tests.api.runs.conftest import Serve, launch, processes, store_plan, until, until_true

Document = dict[str, Any]


def test_a_run_is_launched_watched_and_measured(
    serve_runs: Serve, plan_document: Document, tmp_path: Path
) -> None:
    with serve_runs("good") as client:
        path = launch(client, plan_document, {"steps": 3, "seed": 7})
        run = until(client, path, "succeeded", "failed")
        assert (run["state"], run["failure_code"], run["launcher"]) == ("succeeded", None, "local")
        assert (run["request"]["steps"], run["request"]["seed"]) == (3, 7)
        assert run["measured"] == {"step_s": 0.5, "peak_bytes": 2000.0}
        assert run["predicted"]["step_s"] == 0.4
        assert run["ratio"] == {"step_s": 0.8, "peak_bytes": 1.1}
        assert run["created_at"] <= run["started_at"] <= run["ended_at"]
        assert client.get("/v1/runs", params={"plan_id": run["plan_id"]}).json()["items"] == [run]

        metrics = client.get(run["links"]["metrics"]).json()
        assert [step["loss"] for step in metrics["items"]] == [3.0, 2.0, 1.0]
        later = client.get(run["links"]["metrics"], params={"after": 2}).json()
        assert ([step["step"] for step in later["items"]], later["next"]) == ([3], 3)

        logs = client.get(run["links"]["logs"], params={"rank": 1}).json()
        assert logs == {"rank": 1, "lines": ["rank 1 says", "more"], "next": 17}
        assert client.get(run["links"]["logs"], params={"rank": 1, "after": 12}).json()["lines"] == ["more"]
        assert client.get(run["links"]["logs"]).json()["lines"] == ["said on standard error"]

        assert {"events.jsonl", "order.json", "plan.json", "report.json", "measured.csv"} <= set(
            run["artifacts"]
        )
        table = tmp_path / "measured.csv"
        table.write_bytes(client.get(f"{path}/artifacts/measured.csv").content)
        outcome = outcome_of(read_runs(table)[0])
        assert outcome.skipped is None
        assert outcome.assumed == ()
        # The row is predicted as the plan was: same model, cluster, job and strategy.
        assert outcome.step_s == pytest.approx(plan_document["result"]["best"]["step_s"], rel=1e-9)
        assert outcome.step_error == pytest.approx(outcome.step_s / 0.5 - 1)
        assert not processes(path)


def test_a_failed_run_names_what_failed(serve_runs: Serve, plan_document: Document) -> None:
    with serve_runs("bad") as client:
        run = until(client, launch(client, plan_document), "succeeded", "failed")
    assert (run["state"], run["failure_code"]) == ("failed", "rank_failed")
    assert run["failure_detail"] == "rank 1 failed with exit code 9: no space"


@pytest.mark.parametrize("story", ["wait", "stubborn"])
def test_a_cancelled_run_leaves_no_process(
    serve_runs: Serve, plan_document: Document, tmp_path: Path, story: str
) -> None:
    with serve_runs(story) as client:
        path = launch(client, plan_document)
        until_true((tmp_path / "waits").exists)
        supervisor = client.app.state.keeper.folder_of(path.rpartition("/")[2]).read("heartbeat.json")[
            "process"
        ]  # type: ignore[attr-defined]
        left = processes_of_run("none", supervisor)
        assert len(left) == (3 if story == "stubborn" else 2)
        answer = client.post(f"{path}/cancel")
        assert (answer.status_code, answer.json()["state"]) == (202, "cancelling")
        assert client.post(f"{path}/cancel").status_code == 202
        assert until(client, path, "cancelled", "failed")["state"] == "cancelled"
        assert not [process for process in left if Path(f"/proc/{process}/exe").exists()]
        assert client.post(f"{path}/cancel").status_code == 200


def test_a_second_local_run_waits_and_is_cancelled_at_once(
    serve_runs: Serve, plan_document: Document, tmp_path: Path
) -> None:
    with serve_runs("wait") as client:
        first = launch(client, plan_document)
        until_true((tmp_path / "waits").exists)
        second = launch(client, plan_document)
        assert client.get(second).json()["state"] == "queued"
        assert client.post(f"{second}/cancel").json()["state"] == "cancelled"
        client.post(f"{first}/cancel")
        run = until(client, first, "cancelled")
        assert client.get(run["links"]["plan"]).status_code == 200
        ended = client.post(f"{first}/cancel")
        assert ended.status_code == 200
        assert client.delete(run["links"]["plan"]).status_code == 409


def test_runs_are_off_until_allowed(serve_runs: Serve, plan_document: Document) -> None:
    with serve_runs(allow_runs=False) as client:
        plan_id = store_plan(client.app.state.database, plan_document)  # type: ignore[attr-defined]
        answer = client.post(f"/v1/plans/{plan_id}/runs", json={})
        assert (answer.status_code, answer.json()["type"]) == (409, "/problems/runs_disabled")
        assert client.get("/v1/runs").json() == {"items": [], "next_cursor": None}


def test_what_cannot_be_run_is_refused(serve_runs: Serve, plan_document: Document) -> None:
    nothing = {**plan_document, "result": {"status": "infeasible", "best": None}}
    with serve_runs() as client:
        database = client.app.state.database  # type: ignore[attr-defined]
        cases = [
            (store_plan(database, nothing), {}, 409, "illegal_transition", "infeasible"),
            (
                store_plan(database, plan_document, state="running"),
                {},
                409,
                "illegal_transition",
                "is running",
            ),
            ("plan_0", {}, 404, "not_found", "no such plan"),
            (store_plan(database, plan_document), {"steps": 0}, 422, "invalid_request", "/steps"),
            (
                store_plan(database, plan_document),
                {"launcher": "kubernetes"},
                409,
                "launcher_unavailable",
                "Kubernetes",
            ),
            (
                store_plan(database, plan_document),
                {"place": {"qos": "x"}},
                422,
                "invalid_request",
                "takes no qos",
            ),
        ]
        for plan_id, body, status, code, words in cases:
            answer = client.post(f"/v1/plans/{plan_id}/runs", json=body)
            assert (answer.status_code, answer.json()["type"]) == (status, f"/problems/{code}"), answer.text
            assert words in answer.json()["detail"]


def test_paths_and_functions_come_from_configured_places_only(
    serve_runs: Serve, plan_document: Document, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "data.txt").write_text("words")
    (tmp_path / "secret.txt").write_text("secret")
    (root / "link").symlink_to(tmp_path / "secret.txt")
    settings = {"run_roots": (root,), "run_factories": ("own.data:samples",)}
    with serve_runs(**settings) as client:
        plan_id = store_plan(client.app.state.database, plan_document)  # type: ignore[attr-defined]
        for path in (
            "../secret.txt",
            str(tmp_path / "secret.txt"),
            "link",
            "missing",
            "/etc/passwd",
            "data.txt\0",
        ):
            body = {"data": {"kind": "file", "path": path}}
            answer = client.post(f"/v1/plans/{plan_id}/runs", json=body)
            assert answer.status_code in (400, 422), path
        body = {"data": {"kind": "factory", "entry": "os:system"}}
        answer = client.post(f"/v1/plans/{plan_id}/runs", json=body)
        assert answer.json()["errors"][0]["allowed"] == ["own.data:samples"]
        path = launch(client, plan_document, {"data": {"kind": "file", "path": "data.txt"}})
        until(client, path, "succeeded")
        command = client.app.state.keeper.folder_of(path.rpartition("/")[2]).read("run.json")["command"]  # type: ignore[attr-defined]
        assert command[command.index("--data") + 1] == str(root / "data.txt")


def test_names_of_artifacts_never_escape(serve_runs: Serve, plan_document: Document, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    with serve_runs() as client:
        path = launch(client, plan_document)
        until(client, path, "succeeded")
        folder = client.app.state.keeper.folder_of(path.rpartition("/")[2])  # type: ignore[attr-defined]
        (folder.files / "trace_rank0.json").symlink_to(tmp_path / "secret.txt")
        (folder.files / "run.sh").mkdir()
        names = [
            "../run.json",
            "..%2Frun.json",
            "%2Fetc%2Fpasswd",
            "run.json",
            "trace_rank0.json",
            "run.sh",
            ".",
            "logs",
        ]
        for name in [*names, "heartbeat.json", "x" * 150, "report.json%00", "report.json/../run.json"]:
            answer = client.get(f"{path}/artifacts/{name}")
            assert answer.status_code == 404, name
            assert "secret" not in answer.text
        assert json.loads(client.get(f"{path}/artifacts/report.json").content)["ran"]
