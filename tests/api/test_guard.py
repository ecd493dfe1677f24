"""Request ids, Host and Origin without keys, bearer keys, and exceptions that become problems."""

from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from api.app import create_app
from api.keys import FileKey, hash_key, read_key_file
from api.settings import Settings, is_loopback
from cost_models.errors import BadInput

KEY = "k" * 32


@pytest.mark.parametrize("path", ["/healthz", "/nowhere", "/v1/plans/plan_0"])
def test_a_request_id_is_always_answered(client: TestClient, path: str) -> None:
    assert len(client.get(path).headers["x-request-id"]) == 32
    assert client.get(path, headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
    strange = client.get(path, headers={"x-request-id": "a b\x7f" + "c" * 100}).headers["x-request-id"]
    assert len(strange) == 32


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "[::1", "a b"]
)
def test_another_host_is_refused(client: TestClient, host: str) -> None:
    answer = client.get("/v1/profiles", headers={"host": host})
    assert answer.status_code == 403
    assert answer.json()["type"] == "/problems/host_not_allowed"


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1", "[::1]:8000", "LOCALHOST"])
def test_names_of_this_machine_are_taken(client: TestClient, host: str) -> None:
    assert client.get("/v1/profiles", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:9999", ""])
def test_another_origin_is_refused(client: TestClient, origin: str) -> None:
    answer = client.get("/v1/profiles", headers={"origin": origin})
    assert answer.status_code == 403
    assert answer.json()["type"] == "/problems/origin_not_allowed"


def test_the_own_origin_is_taken(client: TestClient) -> None:
    assert client.get("/v1/profiles", headers={"origin": "http://127.0.0.1:8000"}).status_code == 200


@pytest.fixture
def keyed() -> TestClient:
    """A client of a server with one key, reached by another name."""
    app = create_app(Settings(host="0.0.0.0", file_keys=(FileKey(sha256=hash_key(KEY)),)))
    return TestClient(app, base_url="http://planner.example")


@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {KEY}"}, {"authorization": KEY}],
)
def test_without_its_key_nothing_is_answered(keyed: TestClient, headers: dict[str, str]) -> None:
    for path in ("/v1/profiles", "/openapi.json", "/v1/catalog/devices", "/nowhere"):
        answer = keyed.get(path, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.headers["x-request-id"]


def test_with_its_key_a_request_is_answered(keyed: TestClient) -> None:
    assert keyed.get("/v1/profiles", headers={"authorization": f"Bearer {KEY}"}).status_code == 200


def test_health_needs_no_key(keyed: TestClient) -> None:
    assert keyed.get("/healthz").status_code == 200
    assert keyed.get("/readyz").status_code == 200


def test_keys_are_kept_as_hashes(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"# two keys\n\n{KEY}\n{'z' * 20}\n", encoding="ascii")
    found = read_key_file(path)
    assert [key.sha256 for key in found] == [hash_key(KEY), hash_key("z" * 20)]
    assert KEY not in repr(found)


@pytest.mark.parametrize(
    "content", [b"", b"# nothing\n", b"short\n", b"spaces in a long key\n", b"\xff" * 20]
)
def test_a_useless_key_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(BadInput, match="key"):
        read_key_file(path)


def test_a_missing_key_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read"):
        read_key_file(tmp_path / "none")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_an_exception_becomes_a_problem(caplog: pytest.LogCaptureFixture) -> None:
    app: FastAPI = create_app(Settings())

    @app.get("/broken")
    async def broken() -> Any:
        raise RuntimeError("secret path")

    answer = TestClient(app, base_url="http://localhost").get("/broken")
    assert answer.status_code == 500
    assert answer.json()["type"] == "/problems/internal_error"
    assert "secret" not in answer.text
    assert "secret path" in caplog.text


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_browsers_word_about_another_site_is_taken(client: TestClient, site: str) -> None:
    headers = {"content-type": "application/json", "sec-fetch-site": site}
    answer = client.post("/v1/evaluations", content=b"{}", headers=headers)
    assert answer.json()["type"] == "/problems/origin_not_allowed"


@pytest.mark.parametrize("path", ["/v1/profiles", "/nowhere", "/healthz", "/openapi.json"])
def test_every_answer_forbids_what_it_does_not_need(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"
    assert headers["cache-control"]


def test_the_page_needs_no_key_and_no_evaluation_of_text(keyed: TestClient) -> None:
    answer = keyed.get("/")
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "unsafe-eval" not in policy
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
    assert keyed.get("/page/../v1/profiles").status_code in (401, 404)
    assert keyed.get("/page/..%2f..%2fapp.py").status_code == 404
    assert keyed.post("/page/x").status_code == 401
