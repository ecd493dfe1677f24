"""Keys: scopes of every call, revocation, what they see of each other, quotas; only hashes are stored."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import select

from api import keyring
from api.app import create_app
from api.guard import scope_of
from api.key_commands import keys
from api.keyring import create_key, list_keys, revoke_key
from api.keys import SCOPES, Caller, Scope, hash_key, read_key_file
from api.settings import Settings
from api.store import Database
from api.store.tables import api_keys
from cost_models.errors import BadInput

URL = "http://planner.example"


@pytest.fixture
def app() -> Iterator[FastAPI]:
    """A server that strangers can reach."""
    app = create_app(Settings(host="0.0.0.0"))
    yield app
    app.state.database.close()


def bearer(key: str) -> dict[str, str]:
    """The header of a key."""
    return {"authorization": f"Bearer {key}"}


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/v1/plans", "read"),
        ("GET", "/v1/plans/plan_0/events", "read"),
        ("GET", "/v1/runs/run_0/artifacts/x", "read"),
        ("GET", "/metrics", "read"),
        ("GET", "/openapi.json", "read"),
        ("POST", "/v1/plans", "plan"),
        ("POST", "/v1/plans/plan_0/cancel", "plan"),
        ("PATCH", "/v1/plans/plan_0", "plan"),
        ("DELETE", "/v1/plans/plan_0", "plan"),
        ("POST", "/v1/evaluations", "plan"),
        ("POST", "/v1/exports", "plan"),
        ("POST", "/v1/plans/plan_0/runs", "run"),
        ("POST", "/v1/plans/plan_0/runs/", "run"),
        ("POST", "/v1/runs/run_0/cancel", "run"),
        ("DELETE", "/v1/runs/run_0", "run"),
        ("POST", "/v1/runs", "run"),
    ],
)
def test_every_call_has_its_scope(method: str, path: str, scope: str) -> None:
    assert scope_of(method, path) == scope


def test_each_scope_may_what_it_includes_and_nothing_more(app: FastAPI) -> None:
    client = TestClient(app, base_url=URL)
    calls = (("GET", "/v1/profiles", "read"), ("POST", "/v1/evaluations", "plan"))
    calls += (("POST", "/v1/plans/plan_0/runs", "run"), ("GET", "/metrics", "read"))
    made = {scope: create_key(app.state.database, "team", scope)[1] for scope in SCOPES}
    for scope, key in made.items():
        for method, path, needed in calls:
            answer = client.request(method, path, headers=bearer(key))
            allowed = SCOPES.index(scope) >= SCOPES.index(needed)  # type: ignore[arg-type]
            assert (answer.status_code == 403) != allowed, (scope, path)
            if not allowed:
                assert answer.json()["type"] == "/problems/scope_not_allowed"
                assert f"is {scope}" in answer.json()["detail"]


@pytest.mark.parametrize("path", ["/metrics", "/openapi.json", "/v1/catalog/devices", "/v1/plans", "/docs"])
def test_without_a_key_nothing_can_be_read(app: FastAPI, path: str) -> None:
    client = TestClient(app, base_url=URL)
    assert client.get(path).status_code == 401
    # A key in the URL is no key: URLs stand in logs and histories.
    _, key = create_key(app.state.database, "team", "admin")
    for name in ("key", "token", "access_token", "authorization"):
        answer = client.get(path, params={name: key})
        assert answer.status_code == 401
        assert key not in answer.text


def test_a_revoked_key_ends_within_seconds(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    client = TestClient(app, base_url=URL)
    key_id, key = create_key(app.state.database, "team", "read")
    assert client.get("/v1/profiles", headers=bearer(key)).status_code == 200
    assert revoke_key(app.state.database, key_id)
    monkeypatch.setattr(keyring, "FRESH_S", 0.0)
    assert client.get("/v1/profiles", headers=bearer(key)).status_code == 401
    assert not revoke_key(app.state.database, "key_none")


def test_keys_are_hashed_at_rest_and_compared_as_hashes(app: FastAPI) -> None:
    _, key = create_key(app.state.database, "team", "read")
    with app.state.database.read() as connection:
        (row,) = connection.execute(select(api_keys)).all()
    assert key not in repr(row)
    assert row.sha256 == hash_key(key)
    assert len(key) >= 40


def test_keys_of_one_name_see_the_same(app: FastAPI) -> None:
    database = app.state.database
    mine, first = create_key(database, "mine", "plan")
    also, second = create_key(database, "mine", "read")
    theirs, third = create_key(database, "theirs", "run")
    _, fourth = create_key(database, "theirs", "admin")
    found: list[Caller] = [app.state.keyring.caller(key) for key in (first, second, third, fourth)]
    seen = [[caller.sees(key_id) for key_id in (mine, also, theirs, None)] for caller in found]
    assert seen[0] == seen[1] == [True, True, False, False]
    assert seen[2] == [False, False, True, False]
    assert seen[3] == [True] * 4


def test_a_key_in_the_database_closes_a_server_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyring, "FRESH_S", 0.0)
    app = create_app(Settings())
    client = TestClient(app, base_url="http://localhost")
    assert client.get("/v1/profiles").status_code == 200
    _, key = create_key(app.state.database, "team", "read")
    assert client.get("/v1/profiles").status_code == 401
    assert client.get("/v1/profiles", headers=bearer(key)).status_code == 200


def test_a_key_file_gives_scopes(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"read {'r' * 20}\n{'a' * 20}\n", encoding="ascii")
    assert [key.scope for key in read_key_file(path)] == ["read", "admin"]
    path.write_text(f"write {'r' * 20}\n", encoding="ascii")
    with pytest.raises(BadInput, match="behind one of read, plan, run, admin"):
        read_key_file(path)


def test_one_key_cannot_take_all_places() -> None:
    app = create_app(Settings(host="0.0.0.0", max_per_key=2))
    release = asyncio.Event()

    @app.post("/slow")
    async def slow() -> None:
        await release.wait()

    async def story() -> list[int]:
        _, key = create_key(app.state.database, "team", "plan")
        _, other = create_key(app.state.database, "other", "plan")
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url=URL) as client:
            waiting = [asyncio.ensure_future(client.post("/slow", headers=bearer(key))) for _ in range(2)]
            await asyncio.sleep(0.2)
            refused = await client.post("/slow", headers=bearer(key))
            reads = await client.get("/healthz", headers=bearer(key))
            theirs = asyncio.ensure_future(client.post("/slow", headers=bearer(other)))
            await asyncio.sleep(0.1)
            release.set()
            answers = [
                *await asyncio.gather(*waiting),
                await theirs,
                await client.post("/slow", headers=bearer(key)),
            ]
        assert refused.headers["retry-after"]
        return [refused.status_code, reads.status_code, *(answer.status_code for answer in answers)]

    assert asyncio.run(story()) == [429, 200, 200, 200, 200, 200]


def test_streams_of_one_key_have_a_limit_of_their_own() -> None:
    app = create_app(Settings(host="0.0.0.0", max_reads_per_key=2, max_per_key=1))
    release = asyncio.Event()

    @app.get("/long")
    async def long() -> None:
        await release.wait()

    async def story() -> list[int]:
        _, key = create_key(app.state.database, "team", "plan")
        _, other = create_key(app.state.database, "other", "read")
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url=URL) as client:
            waiting = [asyncio.ensure_future(client.get("/long", headers=bearer(key))) for _ in range(2)]
            await asyncio.sleep(0.2)
            refused = await client.get("/v1/profiles", headers=bearer(key))
            works = await client.delete("/v1/plans/none", headers=bearer(key))
            theirs = await client.get("/v1/profiles", headers=bearer(other))
            release.set()
            answers = await asyncio.gather(*waiting)
        assert "2 reads of this key" in refused.json()["detail"]
        return [refused.status_code, works.status_code, theirs.status_code, *(a.status_code for a in answers)]

    assert asyncio.run(story()) == [429, 404, 200, 200, 200]


def run_keys(*arguments: str) -> Any:
    """A `planner-server keys` command."""
    return CliRunner().invoke(keys, list(arguments))


def test_keys_are_made_listed_and_revoked(tmp_path: Path) -> None:
    place = ("--data-dir", str(tmp_path))
    made = run_keys("create", "--scope", "plan", "--name", "ci", *place)
    assert made.exit_code == 0
    key = made.stdout.strip()
    listed = run_keys("list", *place).stdout
    key_id, name, scope, _, used, revoked = listed.strip().split("\t")
    assert (name, scope, used, revoked) == ("ci", "plan", "never used", "valid")
    assert key not in listed
    assert run_keys("revoke", key_id, *place).exit_code == 0
    assert run_keys("list", *place).stdout.strip().split("\t")[5] != "valid"
    database = Database(None, tmp_path)
    assert [line.id for line in list_keys(database)] == [key_id]
    database.close()


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "--scope", "everything", "--data-dir", "."),
        ("create", "--scope", "read"),
        ("create", "--scope", "read", "--name", "a\nb", "--data-dir", "."),
        ("list",),
    ],
)
def test_half_a_command_is_refused(arguments: tuple[str, ...]) -> None:
    assert run_keys(*arguments).exit_code == 2


def test_an_unknown_key_is_not_revoked(tmp_path: Path) -> None:
    answer = run_keys("revoke", "key_none", "--data-dir", str(tmp_path))
    assert answer.exit_code == 2
    assert "keys list" in answer.stderr


def test_scopes_are_a_ladder() -> None:
    may: list[list[bool]] = [[Caller(scope=held).may(asked) for asked in SCOPES] for held in SCOPES]
    assert may == [[index <= held for index in range(4)] for held in range(4)]
    scopes: list[Scope] = [*SCOPES]
    assert json.dumps(scopes)
