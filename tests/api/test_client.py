"""The client against a real server: the command line answers the same with --server, and calls survive bad networks."""

import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from click.testing import CliRunner

from api import client as module
from api.app import create_app
from api.client import PlannerClient, ServiceError, read_client_key
from api.keys import FileKey, hash_key
from api.settings import Settings
from cost_models.errors import BadInput
from planner.cli.group import planner

KEY = "client-" + "k" * 30
OPTIONS = ["--model", "llama-3.2-1b", "--cluster", "dgx-h100:8", "--seq-len", "2048", "--global-batch", "32"]
STRATEGY = ["--strategy", "tp=2,pp=2,mbs=1,stages=9+9"]
SIZE = ["--model", "pythia-70m", "--cluster", "dgx-h100:16", "--seq-len", "2048", "--global-batch", "64"]
SIZE += ["--tokens", "1e9", "--days", "9", "--devices", "8", "--jobs", "1"]
Run = Any


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """Options that name a server with a key."""
    app = create_app(Settings(file_keys=(FileKey(sha256=hash_key(KEY)),), drain_s=0.0, worker_nice=0))
    running = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False))
    thread = threading.Thread(target=running.run)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    path = tmp_path_factory.mktemp("client") / "key"
    path.write_text(f"# ours\nadmin {KEY}\n", encoding="ascii")
    port = running.servers[0].sockets[0].getsockname()[1]
    yield ["--server", f"http://127.0.0.1:{port}", "--key-file", str(path)]
    running.should_exit = True
    thread.join(20)


def run(*arguments: str) -> Run:
    """A command."""
    return CliRunner().invoke(planner, list(arguments))


def timeless(text: str) -> str:
    """Without what a clock measured."""
    return re.sub(r'"wall_s": [0-9.e-]+', '"wall_s": 0', text)


@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate", *OPTIONS, *STRATEGY],
        ["evaluate", *OPTIONS, "--strategy", "tp=1,mbs=32,recompute=none", "--seq-len", "65536"],
        ["evaluate", *OPTIONS, "--strategy", "tp=3"],
        ["evaluate", *OPTIONS, "--strategy", "warp=3"],
        ["check", *OPTIONS, *STRATEGY, "--max-memory-fraction", "0.01"],
        ["check", *OPTIONS, *STRATEGY],
        ["export", *OPTIONS, *STRATEGY, "--to", "megatron"],
        ["export", *OPTIONS, *STRATEGY, "--to", "nope"],
        ["compare", "tp=2,pp=2,mbs=1", "tp=8", *OPTIONS],
        ["compare", "tp=2", "warp=8", *OPTIONS],
        ["simulate", *OPTIONS, "--strategy", "tp=2,pp=4,mbs=1"],
        ["simulate", *OPTIONS, "--strategy", "tp=2,pp=4,mbs=1,schedule=zb-h1", "--engine", "torch"],
        ["simulate", *OPTIONS, "--strategy", "tp=3"],
        ["inspect", "--model", "deepseek-v3", "--seq-len", "512"],
        ["explain", *OPTIONS, *STRATEGY, "--against", "tp=3"],
        ["explain", *OPTIONS, *STRATEGY, "--against", "tp=1,pp=2,mbs=1,stages=8+8"],
    ],
)
def test_a_server_answers_as_the_command_itself(server: list[str], arguments: list[str]) -> None:
    for more in ([], ["--json"]):
        here, there = run(*arguments, *more), run(*arguments, *more, *server)
        assert there.exit_code == here.exit_code, there.output
        assert timeless(there.stdout) == timeless(here.stdout)
        assert bool(there.stderr) == bool(here.stderr)


@pytest.mark.system
@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", *OPTIONS, "--strategy", "tp=2,pp=2,mbs=1", "--max-seconds", "0"],
        ["size", *SIZE, "--pin", "tp=1", "--pin", "pp=1"],
    ],
)
def test_longer_answers_of_a_server_are_those_of_the_command(server: list[str], arguments: list[str]) -> None:
    here, there = run(*arguments, "--json"), run(*arguments, "--json", *server)
    assert there.exit_code == here.exit_code == 0, there.output
    assert timeless(there.stdout) == timeless(here.stdout)


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["simulate", *OPTIONS, *STRATEGY, "--trace", "trace.json"], "--trace"),
        (["explain", *OPTIONS, *STRATEGY, "--measured", "run.json"], "--measured"),
    ],
)
def test_what_works_on_files_of_this_machine_is_refused(
    server: list[str], arguments: list[str], option: str
) -> None:
    refused = run(*arguments, *server)
    assert refused.exit_code == 2
    assert f"{option} works on files of this machine; leave --server out" in refused.output


def without_times(text: str) -> Any:
    """A plan's object without what a clock measured."""
    found = json.loads(text)
    found["certificate"].pop("wall_s")
    return found


def _without_time(text: str) -> list[str]:
    """Lines for people but the one that a clock measured."""
    return [line for line in text.splitlines() if not line.startswith("time ")]


@pytest.mark.slow
def test_a_plan_of_a_server_is_the_plan_of_the_command(server: list[str], tmp_path: Path) -> None:
    arguments = ["plan", *OPTIONS, "--top-k", "2", "--json"]
    files = [tmp_path / "here.json", tmp_path / "there.json"]
    here = run(*arguments, "-o", str(files[0]))
    there = run(*arguments, "-o", str(files[1]), "--progress", "jsonl", *server)
    assert there.exit_code == here.exit_code == 0, there.output
    assert without_times(there.stdout) == without_times(here.stdout)
    shown = [run(*arguments[:-1], *more).stdout for more in ([], server)]
    assert "how sure" in shown[0]
    assert [_without_time(text) for text in shown[:1]] == [_without_time(text) for text in shown[1:]]
    ours, theirs = (json.loads(path.read_text()) for path in files)
    assert list(ours) == list(theirs)
    assert ours["request"] == theirs["request"]
    # The file of a server serves every other command.
    again = run("check", str(files[1]), "--json")
    assert again.exit_code == 0
    exported = run("export", str(files[1]), "--to", "megatron", "--json", *server)
    assert exported.stdout == run("export", str(files[1]), "--to", "megatron", "--json").stdout


def test_plans_are_listed_shown_cancelled_and_deleted(server: list[str]) -> None:
    with client_of(server) as client:
        body = {"model": {"kind": "catalog", "name": "deepseek-v3"}, "name": "mine"}
        body |= {"cluster": {"kind": "preset", "name": "dgx-h100", "devices": 256}}
        plan = client.plan(body | {"job": {"seq_len": 4096, "global_batch": 512}}, wait=False)
    listed = json.loads(run("plans", "list", "--name", "mine", "--json", *server).stdout)
    assert [item["id"] for item in listed["items"]] == [plan["id"]]
    cancelled = run("plans", "cancel", plan["id"], "--json", *server)
    assert json.loads(cancelled.stdout)["state"] == "cancelled"
    assert json.loads(run("plans", "show", plan["id"], "--json", *server).stdout)["name"] == "mine"
    assert "cancelled" in run("plans", "list", *server).stdout
    assert run("plans", "delete", plan["id"], *server).exit_code == 0
    assert run("plans", "show", plan["id"], *server).exit_code == 2


def client_of(options: list[str]) -> PlannerClient:
    """A client of the server that options name."""
    return PlannerClient(options[1], read_client_key(Path(options[3])))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--key-file", "nowhere"], "--key-file without --server"),
        (["--server", "localhost:8000"], "is no URL"),
        (["--server", "http://127.0.0.1:9", "--key-file", "nowhere"], "cannot be read"),
    ],
)
def test_half_a_server_is_refused(more: list[str], words: str) -> None:
    answer = run("evaluate", *OPTIONS, *STRATEGY, *more)
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert words in answer.stderr


def test_a_wrong_key_is_told(server: list[str], tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("x" * 30, encoding="ascii")
    answer = run("evaluate", *OPTIONS, *STRATEGY, *server[:2], "--key-file", str(path))
    assert answer.exit_code == 2
    assert "no valid key" in answer.stderr


class Flaky:
    """A server that answers what it is told, one answer a request."""

    def __init__(self, *answers: httpx2.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx2.Request] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that the client would have waited."""
    found: list[float] = []
    monkeypatch.setattr(module, "sleep", found.append)
    return found


def flaky(*answers: httpx2.Response | Exception) -> tuple[Flaky, PlannerClient]:
    """A client of such a server."""
    server = Flaky(*answers)
    return server, PlannerClient("http://x", transport=httpx2.MockTransport(server))


DONE = {"id": "plan_1", "state": "succeeded"}
GONE = httpx2.ConnectError("gone")


def test_what_is_safe_is_sent_again(pauses: list[float]) -> None:
    busy = httpx2.Response(429, headers={"retry-after": "7"}, json={"detail": "busy"})
    server, client = flaky(GONE, busy, httpx2.Response(200, json={"items": []}))
    assert client.evaluate({}) == []
    assert pauses == [0.5, 7.0]
    server, client = flaky(GONE, httpx2.Response(200, json=DONE))
    assert client.plan({}) == DONE
    # A plan that is asked for again is the same plan: both requests carry one key.
    assert len({request.headers["idempotency-key"] for request in server.requests}) == 1


def test_what_is_not_safe_is_sent_once(pauses: list[float]) -> None:
    server, client = flaky(GONE)
    with pytest.raises(ServiceError, match="cannot be reached"):
        client.start_run("plan_1", {})
    assert (len(server.requests), pauses) == (1, [])


def test_it_gives_up_at_last(pauses: list[float]) -> None:
    server, client = flaky(*[GONE] * 5)
    with pytest.raises(ServiceError, match="ConnectError"):
        client.read_plan("plan_1")
    assert pauses == [0.5, 1.0, 2.0, 4.0]
    server, client = flaky(*[httpx2.Response(503, json={"detail": "stopping"})] * 5)
    with pytest.raises(ServiceError, match="stopping"):
        client.read_plan("plan_1")
    assert len(server.requests) == 5


def test_events_go_on_where_they_broke(pauses: list[float]) -> None:
    first = 'id: 1\nevent: state\ndata: {"state": "running"}\n\n: keep-alive\n\nid: 2\nevent: progress\ndata: {}\n\n'
    rest = 'id: 3\nevent: end\ndata: {"state": "succeeded"}\n\n'
    running = {"id": "plan_1", "state": "running"}
    server, client = flaky(
        httpx2.Response(200, text=first),
        httpx2.Response(200, json=running),
        httpx2.Response(200, text=rest),
        httpx2.Response(200, json=DONE),
    )
    seen: list[str] = []
    assert client.wait("plan_1", lambda kind, _: seen.append(kind)) == DONE
    assert seen == ["state", "progress", "end"]
    assert server.requests[2].headers["last-event-id"] == "2"


def test_an_artifact_is_bytes_and_names_are_quoted() -> None:
    server, client = flaky(
        httpx2.Response(200, content=b"\x00\xff"), httpx2.Response(404, json={"detail": "none"})
    )
    assert client.read_artifact("run_1", "../x") == b"\x00\xff"
    assert server.requests[0].url.raw_path == b"/v1/runs/run_1/artifacts/..%2Fx"
    with pytest.raises(ServiceError, match="none"):
        client.read_artifact("run_1", "y")


def test_an_answer_that_is_no_json_is_told() -> None:
    _, client = flaky(httpx2.Response(404, text="<html>"))
    with pytest.raises(ServiceError, match="answered 404 without"):
        client.read_plan("plan_1")


def test_a_file_outside_its_folder_is_not_written() -> None:
    from planner.cli.remote import export_of

    for path in ("/etc/x", "../x", "a/../../x", "a\\b", ""):
        with pytest.raises(BadInput, match="outside the folder"):
            export_of({"files": [{"path": path, "content": ""}]})


def test_nothing_of_the_server_is_loaded() -> None:
    import subprocess

    code = "import sys, api.client; print({'fastapi', 'dbos', 'sqlalchemy', 'ortools', 'numpy'} & set(sys.modules))"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert answer.stdout.strip() == "set()"
