"""The OpenAPI document: closed schemas, examples that work, and a server that answers nothing it does not say."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import schemathesis
import uvicorn
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.config import SchemathesisConfig
from schemathesis.generation import GenerationMode

from api.app import create_app
from api.examples import EXAMPLES
from api.settings import Settings

# Bodies may be right by their schema and wrong for the planner: a config is any object, a strategy any text.
CONFIG = SchemathesisConfig.from_dict(
    {
        "checks": {
            "positive_data_acceptance": {
                "expected-statuses": ["2xx", "400", "403", "404", "409", "412", "422", "428"]
            },
        }
    }
)
QUIET = settings(
    max_examples=8,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
    database=None,
)
LONG = settings(QUIET, max_examples=150)
SLOW = settings(QUIET, max_examples=6)
PATIENCE_S = 120.0
MOST_SECONDS = 0.5
"""For calls that start processes: what a body asks for beyond it is cut, since hypothesis likes the most."""
# Said of schemathesis' own strategies.
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module")
SLOW_PATHS = ("/v1/explanations", "/v1/accuracy", "/v1/sizes")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The document of a server without keys."""
    return create_app(Settings(starts_jobs=False)).openapi()


def objects(node: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema of an object with named properties."""
    if isinstance(node, dict):
        if "properties" in node and isinstance(node["properties"], dict):
            yield path, node
        for key, inner in node.items():
            yield from objects(inner, f"{path}/{key}")
    elif isinstance(node, list):
        for index, inner in enumerate(node):
            yield from objects(inner, f"{path}/{index}")


def test_schemas_are_closed(document: dict[str, Any]) -> None:
    found = dict(objects(document))
    assert len(found) > 40
    assert [path for path, schema in found.items() if schema.get("additionalProperties") is not False] == []


def test_every_error_is_a_problem_and_every_call_says_its_scope(document: dict[str, Any]) -> None:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            errors = {status: answer for status, answer in operation["responses"].items() if status >= "400"}
            assert all(list(answer["content"]) == ["application/problem+json"] for answer in errors.values())
            if path.startswith("/v1/"):
                assert {"401", "403", "429"} <= set(errors), path
                assert operation["x-scope"] == ("read" if method == "get" else operation["x-scope"])
                assert operation["security"]


def test_every_body_has_an_example(document: dict[str, Any]) -> None:
    named = {path for path, methods in document["paths"].items() if "requestBody" in methods.get("post", {})}
    assert {path for path in named if "runs" not in path} == set(EXAMPLES)


@pytest.mark.parametrize("path", [path for path in EXAMPLES if path != "/v1/explanations"])
def test_examples_are_answered_as_the_schema_says(
    answering: TestClient, document: dict[str, Any], path: str
) -> None:
    answer = answering.post(path, json=EXAMPLES[path])
    assert answer.status_code in (200, 202), answer.text
    answers = document["paths"][path]["post"]["responses"]
    schema = answers[str(answer.status_code)]["content"]["application/json"]["schema"]
    jsonschema_rs.validator_for({**schema, "components": document["components"]}).validate(answer.json())


@pytest.fixture(scope="module")
def live() -> Iterator[str]:
    """The address of a server whose searches answer at once."""
    command = (sys.executable, "-S", "-E", str(Path(__file__).with_name("fake_worker.py")), "answer")
    app = create_app(Settings(worker_command=command, drain_s=0.0, worker_nice=0))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(20)


@pytest.fixture
def api_schema(live: str) -> Any:
    """The document as schemathesis reads it from a running server."""
    return schemathesis.openapi.from_url(f"{live}/openapi.json", config=CONFIG)


def operations(schema: Any, slow: bool) -> list[Any]:
    """Operations to try; those that start processes only in the long run."""
    found = [result.ok() for result in schema.get_all_operations()]
    return [each for each in found if slow or each.path not in SLOW_PATHS]


def try_all(schema: Any, given_settings: settings, slow: bool) -> None:
    """Send what the schema allows, and what it does not, to every call; every check of schemathesis holds."""
    for operation in operations(schema, slow):
        is_slow = operation.path in SLOW_PATHS
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            try_operation(
                operation.as_strategy(generation_mode=mode), SLOW if is_slow else given_settings, is_slow
            )


def try_operation(cases: Any, wanted: settings, is_slow: bool) -> None:
    """Send cases of one call."""

    @wanted
    @given(case=cases)
    def try_one(case: Any) -> None:
        if is_slow:
            _in_short(case)
        case.call_and_validate(timeout=PATIENCE_S)

    with suppress(Unsatisfiable):  # calls without any input have no wrong one
        try_one()


def _in_short(case: Any) -> None:
    """Leave out what would take long and stays as right, or as wrong, when it is short."""
    seconds = case.body.get("max_seconds", 60) if isinstance(case.body, dict) else None
    if isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > MOST_SECONDS:
        case.body["max_seconds"] = MOST_SECONDS


@pytest.mark.system
def test_the_server_answers_as_it_says(api_schema: Any) -> None:
    try_all(api_schema, QUIET, slow=False)


@pytest.mark.system
def test_what_is_linked_can_be_followed(api_schema: Any) -> None:
    api_schema.as_state_machine().run(settings=settings(QUIET, max_examples=8, stateful_step_count=6))


@pytest.mark.matrix
def test_the_server_answers_as_it_says_at_length(api_schema: Any) -> None:
    try_all(api_schema, LONG, slow=True)


@pytest.mark.matrix
def test_what_is_linked_can_be_followed_at_length(api_schema: Any) -> None:
    api_schema.as_state_machine().run(settings=settings(LONG, stateful_step_count=12))
