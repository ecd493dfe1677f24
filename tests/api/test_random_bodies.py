"""No body, however strange, is answered with a 500: valid requests with one value replaced by another."""

import copy
import json
from typing import Any

from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.app import create_app
from api.settings import Settings
from cost_models.profiles import list_models, model_config

CLIENT = TestClient(create_app(Settings()), base_url="http://localhost", raise_server_exceptions=False)

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.integers(-3, 300)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["", "1", "tp=2", "llama", "core_attn", "bf16", "\ud800", "../x", "none"])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
MODELS = st.sampled_from(list_models())


def paths(value: object, prefix: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to everything inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [prefix] if prefix else []
    for key, inner in items:
        found += paths(inner, (*prefix, key))
    return found


def replaced(value: Any, path: tuple[Any, ...], new: object) -> Any:
    """A copy with the value at one path replaced."""
    copied = copy.deepcopy(value)
    at = copied
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = new
    return copied


@st.composite
def bodies(draw: st.DrawFn) -> Any:
    """A valid evaluation with one or two values replaced."""
    body: Any = {
        "model": {"kind": "huggingface", "config": model_config(draw(MODELS))},
        "cluster": {"kind": "preset", "name": "dgx-h100", "devices": 8},
        "job": {"seq_len": 512, "global_batch": 16, "options": {"engine.attention": "flash"}},
        "strategies": [{"tp": 2, "pp": 1, "recompute": "full:1", "stages": "8"}, "tp=1"],
    }
    for _ in range(draw(st.integers(1, 2))):
        body = replaced(body, draw(st.sampled_from(paths(body))), draw(VALUES))
        if not isinstance(body, dict):
            break
    return body


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(bodies())
def test_a_strange_value_is_no_internal_error(body: Any) -> None:
    answer = CLIENT.post(
        "/v1/evaluations", content=json.dumps(body), headers={"content-type": "application/json"}
    )
    assert answer.status_code < 500, (answer.text, body)
    json.loads(answer.text, parse_constant=lambda name: 1 / 0)


@settings(max_examples=150)
@given(st.binary(max_size=40) | st.text(max_size=40).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_strange_bytes_are_no_internal_error(content: bytes) -> None:
    answer = CLIENT.post("/v1/checks", content=content, headers={"content-type": "application/json"})
    assert 400 <= answer.status_code < 500
    assert answer.text.isascii()
