"""`planner-server` refuses to listen where strangers could reach it without keys, and serves on loopback."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.settings import Settings
from api.store import Database

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "from api.server import main; main()"
START_S = 120.0


def run_server(data_dir: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Start a server that is expected to refuse."""
    command = [sys.executable, "-c", PROGRAM, "--data-dir", str(data_dir), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "planner.example"])
def test_another_address_without_keys_is_refused(host: str, tmp_path: Path) -> None:
    answer = run_server(tmp_path / "none", "--host", host)
    assert answer.returncode == 2
    assert answer.stdout == ""
    assert "--key-file" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_useless_key_file_is_refused(tmp_path: Path) -> None:
    answer = run_server(tmp_path, "--host", "0.0.0.0", "--key-file", str(tmp_path / "none"))
    assert answer.returncode == 2
    assert "cannot be read" in answer.stderr


def test_a_request_without_its_database_is_not_an_internal_error(tmp_path: Path) -> None:
    # A folder where the file should be: SQLite cannot open it, as a PostgreSQL that is away cannot be reached.
    place = tmp_path / "planner.sqlite"
    app = create_app(Settings(database=f"sqlite:///{place}"))
    place.mkdir()
    client = TestClient(app, base_url="http://127.0.0.1:8000")
    for path in ("/v1/plans", "/v1/plans/plan_a"):
        answer = client.get(path)
        assert (answer.status_code, answer.json()["type"]) == (503, "/problems/not_ready")
        assert answer.headers["retry-after"]
    assert client.get("/healthz").status_code == 200


def test_a_schema_that_is_newer_keeps_the_server_not_ready(tmp_path: Path) -> None:
    newer = Database(None, tmp_path)
    with newer.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    newer.close()
    with TestClient(create_app(Settings(data_dir=tmp_path, starts_jobs=True))) as client:
        deadline = time.monotonic() + START_S
        while "newer" not in client.get("/readyz").json()["detail"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").status_code == 200


def test_without_the_web_framework_it_says_what_to_install() -> None:
    hide = "import importlib.util as u, api.server as s; s.find_spec = lambda name: None; s.main()"
    answer = subprocess.run(
        [sys.executable, "-c", hide], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert answer.returncode == 2
    assert "[server]" in answer.stderr


def test_it_serves_on_loopback_and_stops_when_told(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "--port", "0", "--data-dir", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        url = first_url(process)
        with urllib.request.urlopen(f"{url}/healthz", timeout=10) as answer:
            assert answer.status == 200
        while status_of(f"{url}/readyz") != 200:  # 503 while it makes its database
            time.sleep(0.05)
        process.terminate()
        process.communicate(timeout=30)
        assert process.returncode == 0
        assert not list((tmp_path / "leases").iterdir())  # it left in order
    finally:
        process.kill()
        process.communicate()


def status_of(url: str) -> int:
    """The status of an answer."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def first_url(process: "subprocess.Popen[str]") -> str:
    """The address that the server says it listens on."""
    assert process.stderr is not None
    deadline = time.monotonic() + START_S
    for line in process.stderr:
        message = json.loads(line)["message"] if line.startswith("{") else line
        if "running on " in message:
            return str(message.split("running on ")[1].split()[0])
        assert time.monotonic() < deadline
    raise AssertionError("the server ended")
