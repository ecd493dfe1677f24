"""Every malformed or absurd body is answered with a problem of class 4xx, never 500, and never echoed."""

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

PATH = "/v1/evaluations"
JSON = {"content-type": "application/json"}
MODEL = '"model": {"kind": "catalog", "name": "llama-3.2-1b"}'
CLUSTER = '"cluster": {"kind": "preset", "name": "dgx-h100", "devices": 8}'


def body(job: str, strategies: str = '["tp=1"]') -> str:
    """A body around the text of a job."""
    return f'{{{MODEL}, {CLUSTER}, "job": {job}, "strategies": {strategies}}}'


def problem_of(client: TestClient, content: str | bytes, status: int, path: str = PATH) -> dict[str, Any]:
    """The problem that answers a body, after the checks that hold for all of them."""
    answer = client.post(path, content=content, headers=JSON)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.text.isascii()
    found: dict[str, Any] = answer.json()
    assert found["status"] == status
    assert found["request_id"] == answer.headers["x-request-id"]
    assert found["type"].startswith("/problems/")
    assert found["title"]
    assert "Traceback" not in answer.text
    return found


@pytest.mark.parametrize(
    ("content", "offset"),
    [
        ("{", 1),
        ('{"a": }', 6),
        # Two bytes of UTF-8 for the letter: the offset counts bytes, not characters.
        ('{"é": }', 7),
        (b'{"a": "\xff"}', 7),
        (b"\xef\xbb\xbf{}", 0),
        ('{"a": NaN}', 6),
        ('{"NaN": [-Infinity]}', 9),
        ("   ", 0),
        ("", 0),
    ],
)
def test_a_body_that_does_not_parse_names_the_byte(
    client: TestClient, content: str | bytes, offset: int
) -> None:
    found = problem_of(client, content, 400)
    assert found["type"] == "/problems/malformed"
    assert f"byte {offset}" in found["detail"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (body('{"global_batch": 8, "global_batch": 16}'), "'global_batch' twice"),
        (body('{"global_batch": ' + "9" * 400 + "}"), "400 digits"),
        (body('{"global_batch": ' + "9" * 5000 + "}"), "5000 digits"),
        (body('{"global_batch": 1e999}'), "too large for a double"),
        (body('{"global_batch": 8, "engine": "\\ud800"}'), "lone surrogate"),
        (body('{"global_batch": 8, "\\udfff": 1}'), "lone surrogate"),
        ("[" * 100 + "]" * 100, "nested deeper"),
        ("[" * 40_000 + "]" * 40_000, "nested deeper"),
        ('{"a":' * 15_000 + "1" + "}" * 15_000, "nested deeper"),
    ],
)
def test_json_with_a_second_meaning_is_refused(client: TestClient, content: str, words: str) -> None:
    assert words in problem_of(client, content, 400)["detail"]


@pytest.mark.parametrize("content", ["[]", "1", '"text"', "null", "true"])
def test_other_json_than_an_object_is_refused(client: TestClient, content: str) -> None:
    assert problem_of(client, content, 422)["type"] == "/problems/invalid_request"


@pytest.mark.parametrize(
    ("job", "pointer"),
    [
        ('{"global_batch": true}', "/job/global_batch"),
        ('{"global_batch": "8"}', "/job/global_batch"),
        ('{"global_batch": 8.0}', "/job/global_batch"),
        ('{"global_batch": 0}', "/job/global_batch"),
        ('{"global_batch": -1}', "/job/global_batch"),
        ('{"global_batch": 999999999999}', "/job/global_batch"),
        ('{"global_batch": null}', "/job/global_batch"),
        ("{}", "/job/global_batch"),
        ('{"global_batch": 8, "seq_len": true}', "/job/seq_len"),
        ('{"global_batch": 8, "seq_len": 0}', "/job/seq_len"),
        ('{"global_batch": 8, "seq_length": 1}', "/job/seq_length"),
        ('{"global_batch": 8, "precision": "bf61"}', "/job/precision"),
        ('{"global_batch": 8, "options": {"engine.attention": [1]}}', "/job/options/engine.attention"),
        ('{"global_batch": 8, "options": {"a/b~": {}}}', "/job/options/a~1b~0"),
        ("[]", "/job"),
    ],
)
def test_a_wrong_value_is_named_by_its_pointer(client: TestClient, job: str, pointer: str) -> None:
    found = problem_of(client, body(job), 422)
    assert found["type"] == "/problems/invalid_request"
    assert pointer in [error["pointer"] for error in found["errors"]]


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"model": {"kind": "path", "name": "x"}}, "/model"),
        ({"model": "llama-3.2-1b"}, "/model"),
        ({"model": {"kind": "catalog", "name": "x" * 201}}, "/model/name"),
        ({"model": {"kind": "catalog", "name": "x", "path": "y"}}, "/model/path"),
        ({"model": {"kind": "huggingface"}}, "/model/config"),
        ({"cluster": {"kind": "preset", "name": "dgx-h100", "devices": True}}, "/cluster/devices"),
        ({"cluster": "dgx-h100:8"}, "/cluster"),
        ({"strategies": []}, "/strategies"),
        ({"strategies": ["tp=1"] * 1001}, "/strategies"),
        ({"strategies": [7]}, "/strategies/0"),
        ({"url": "http://localhost"}, "/url"),
    ],
)
def test_a_wrong_key_is_named_by_its_pointer(
    client: TestClient, question: dict[str, Any], change: dict[str, Any], pointer: str
) -> None:
    content = json.dumps({**question, "strategies": ["tp=1"], **change})
    found = problem_of(client, content, 422)
    assert pointer in [error["pointer"] for error in found["errors"]]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"cluster": {"kind": "preset", "name": "dgx-h100", "devices": 0}}, "invalid_request"),
        ({"cluster": {"kind": "preset", "name": "dgx-h100", "devices": -8}}, "invalid_request"),
        ({"cluster": {"kind": "preset", "name": "dgx-h100", "devices": 10**17}}, "invalid_request"),
        ({"cluster": {"kind": "preset", "name": "../devices/l4"}}, "invalid_request"),
        ({"cluster": {"kind": "spec", "spec": {}}}, "invalid_request"),
        (
            {"cluster": {"kind": "spec", "spec": {"name": "x", "groups": [1], "tiers": [{}]}}},
            "invalid_request",
        ),
        ({"model": {"kind": "catalog", "name": "../../etc/passwd"}}, "invalid_request"),
        ({"model": {"kind": "catalog", "name": "no-such-model"}}, "invalid_request"),
        ({"model": {"kind": "layers", "spec": {"layers": 7}}}, "invalid_request"),
        ({"model": {"kind": "layers", "spec": {"layers": [{"kind": []}]}}}, "invalid_request"),
        ({"model": {"kind": "huggingface", "config": {}}}, "invalid_request"),
        ({"model": {"kind": "huggingface", "config": {"model_type": "warp"}}}, "unknown_model_family"),
        ({"model": {"kind": "huggingface", "config": {"model_type": 7}}}, None),
        ({"model": {"kind": "huggingface", "config": {"model_type": "llama", "hidden_size": "8"}}}, None),
        ({"job": {"global_batch": 8}}, "invalid_request"),
        ({"job": {"global_batch": 8, "seq_len": 128, "engine": "megatrom"}}, "invalid_request"),
        ({"job": {"global_batch": 8, "seq_len": 128, "options": {"engine.warp": 1}}}, "invalid_request"),
        ({"job": {"global_batch": 8, "seq_len": 128, "options": {"warp": 1}}}, "invalid_request"),
    ],
)
def test_what_the_planner_refuses_is_422(
    client: TestClient, question: dict[str, Any], change: dict[str, Any], code: str | None
) -> None:
    content = json.dumps({**question, "strategies": ["tp=1"], **change})
    found = problem_of(client, content, 422)
    assert code is None or found["type"] == f"/problems/{code}"
    assert found["detail"]


def test_a_file_named_in_a_request_is_not_opened(client: TestClient, question: dict[str, Any]) -> None:
    named = {**question, "model": {"kind": "catalog", "name": __file__[:200]}, "strategies": ["tp=1"]}
    assert "not one of" in problem_of(client, json.dumps(named), 422)["detail"]


def test_input_is_not_echoed(client: TestClient) -> None:
    noise = "<script>\\u202e\\u0001é" * 300
    found = problem_of(client, body(f'{{"global_batch": "{noise}", "{noise}": 1}}'), 422)
    assert len(json.dumps(found)) < 3000


def test_a_large_body_is_refused_by_its_length_and_by_its_bytes(client: TestClient) -> None:
    assert problem_of(client, b" " * 100_001, 413)["type"] == "/problems/body_too_large"

    def pieces() -> Any:
        for _ in range(200):
            yield b" " * 1000

    answer = client.post(PATH, content=pieces(), headers=JSON)
    assert answer.status_code == 413


@pytest.mark.parametrize(
    "stated",
    [
        None,
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json; charset=latin-1",
        "multipart/form-data",
    ],
)
def test_another_content_type_is_refused(client: TestClient, stated: str | None) -> None:
    headers = {} if stated is None else {"content-type": stated}
    answer = client.post(PATH, content=b"{}", headers=headers)
    assert answer.status_code == 415
    assert answer.json()["type"] == "/problems/unsupported_media_type"


@pytest.mark.parametrize("path", ["/v1/plans", "/v1/evaluations", "/v1/checks"])
def test_every_body_is_read_strictly(client: TestClient, path: str) -> None:
    assert "byte 6" in problem_of(client, '{"a": NaN}', 400, path)["detail"]
