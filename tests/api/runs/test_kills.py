"""Servers, supervisors and hosts that are lost: runs go on or end, and leave no process."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update

from api.runs.keeper import Keeper
from api.runs.processes import MARKER, is_alive, kill_run, processes_of_run, start_of
from api.store import Database
from api.store.tables import runs as table
from tests.api.runs.conftest import Serve, launch, processes, store_plan, until, until_true
from tests.planner.executor.launch.slurm_cluster import free_port

Document = dict[str, Any]
ROOT = Path(__file__).resolve().parents[3]


def keeper_of(client: TestClient) -> Keeper:
    keeper: Keeper = client.app.state.keeper  # type: ignore[attr-defined]
    return keeper


def heartbeat(client: TestClient, path: str) -> dict[str, Any]:
    return keeper_of(client).folder_of(path.rpartition("/")[2]).read("heartbeat.json")


def started(port: int, data: Path, story: str, folder: Path) -> "subprocess.Popen[bytes]":
    """A server process that answers."""
    command = [sys.executable, str(Path(__file__).with_name("serve.py")), str(port), str(data), story]
    environment = {**os.environ, "STUB_FOLDER": str(folder), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, env=environment, cwd=folder, start_new_session=True)
    until_true(lambda: answers(f"http://127.0.0.1:{port}/healthz"))
    return process


def answers(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.loads(answer.read())
    except OSError:
        return None


@pytest.mark.system  # starts two servers: as slow as those that need other programs
def test_a_run_outlives_a_killed_server_and_is_taken_up_by_the_next(
    plan_document: Document, tmp_path: Path
) -> None:
    database = Database(None, tmp_path / "data")
    plan_id = store_plan(database, plan_document)
    database.close()
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    first = started(port, tmp_path / "data", "wait", tmp_path)
    try:
        asked = urllib.request.Request(
            f"{base}/v1/plans/{plan_id}/runs", b"{}", {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(asked, timeout=10) as answer:
            run = json.loads(answer.read())
        until_true((tmp_path / "waits").exists)
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        before = processes_of_run(run["id"])
        assert before
        first = started(port, tmp_path / "data", "wait", tmp_path)
        assert answers(f"{base}{run['links']['self']}")["state"] in ("launching", "running")
        assert processes_of_run(run["id"]) == before
        end = urllib.request.Request(f"{base}{run['links']['cancel']}", b"", method="POST")
        urllib.request.urlopen(end, timeout=10).close()
        until_true(lambda: answers(f"{base}{run['links']['self']}")["state"] == "cancelled")
        assert not processes_of_run(run["id"])
    finally:
        first.terminate()
        first.wait(20)


def test_a_killed_supervisor_ends_its_local_run(
    serve_runs: Serve, plan_document: Document, tmp_path: Path
) -> None:
    with serve_runs("wait") as client:
        path = launch(client, plan_document)
        until_true((tmp_path / "waits").exists)
        until(client, path, "running")
        os.kill(heartbeat(client, path)["process"], signal.SIGKILL)
        run = until(client, path, "failed", "cancelled")
        assert run["failure_code"] == "supervisor_died"
        assert not processes(path)


def test_a_job_of_a_launcher_is_taken_up_by_its_name(
    serve_runs: Serve, plan_document: Document, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.routes.runs.check_launcher", lambda *_: None)
    with serve_runs("wait", run_launch=("kubernetes.namespace=ml",)) as client:
        path = launch(client, plan_document, {"launcher": "kubernetes", "place": {"queue": "a"}})
        until_true((tmp_path / "waits").exists)
        beat = heartbeat(client, path)
        os.kill(beat["process"], signal.SIGKILL)
        until_true(lambda: client.get(path).json()["attempt"] == 2)
        until_true(lambda: heartbeat(client, path).get("process", beat["process"]) != beat["process"])
        run_id = path.rpartition("/")[2]
        command = keeper_of(client).folder_of(run_id).read("run.json")["command"]
        assert command[command.index("--name") + 1] == run_id
        assert [command[index + 1] for index, word in enumerate(command) if word == "--launch"] == [
            "namespace=ml",
            "queue=a",
        ]
        client.post(f"{path}/cancel")
        until(client, path, "cancelled")
        assert not processes(path)
        # The run was ended by a signal that it did not handle, so its job is ended by name.
        assert (tmp_path / "job-ended").exists()


@pytest.mark.parametrize("age_s", [5.0, 1000.0])
def test_a_host_without_a_sign_of_life_has_lost_its_local_runs(
    serve_runs: Serve, plan_document: Document, age_s: float
) -> None:
    with serve_runs("good", host_lost_s=100.0) as client:
        path = launch(client, plan_document)
        until(client, path, "succeeded")
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(time.time() - age_s))
        database: Database = client.app.state.database  # type: ignore[attr-defined]
        elsewhere = {"state": "running", "host": "other/boot/1", "heartbeat_at": stamp, "ended_at": None}
        with database.write() as connection:
            connection.execute(update(table).values(elsewhere))
        keeper_of(client).look()
        run = client.get(path).json()
        lost = age_s > 100
        assert (run["state"], run["failure_code"]) == (("failed", "host_lost") if lost else ("running", None))


def test_a_host_that_booted_again_has_lost_its_local_runs(serve_runs: Serve, plan_document: Document) -> None:
    with serve_runs("good") as client:
        path = launch(client, plan_document)
        until(client, path, "succeeded")
        name = keeper_of(client).host.partition("/")[0]
        database: Database = client.app.state.database  # type: ignore[attr-defined]
        with database.write() as connection:
            connection.execute(update(table).values(state="running", host=f"{name}/before/1", ended_at=None))
        keeper_of(client).look()
        assert client.get(path).json()["failure_code"] == "host_lost"


def test_processes_of_a_run_in_a_final_state_are_swept(
    serve_runs: Serve, plan_document: Document, tmp_path: Path
) -> None:
    with serve_runs("wait") as client:
        path = launch(client, plan_document)
        until_true((tmp_path / "waits").exists)
        database: Database = client.app.state.database  # type: ignore[attr-defined]
        with database.write() as connection:
            connection.execute(update(table).values(state="failed", failure_code="host_lost"))
        beat = heartbeat(client, path)
        assert processes(path)
        keeper_of(client).sweep()
        assert not processes(path)
        until_true(lambda: not is_alive(beat["process"], beat["start"]))


def test_a_process_is_known_by_its_start_and_a_run_by_its_mark() -> None:
    sleeper = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(sleeper, env={MARKER: "run_marked"}) as process:
        start = start_of(process.pid)
        assert start is not None
        assert is_alive(process.pid, start)
        assert not is_alive(process.pid, str(int(start) - 1))
        assert process.pid in processes_of_run("run_marked")
        assert process.pid not in processes_of_run("run_mark")
        assert kill_run("run_marked", 5)
        assert process.wait(5) == -signal.SIGKILL
