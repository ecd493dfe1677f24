"""The page's files: answered without a key, under a strict policy, small, and as the vendor made them."""

import json
import re
from hashlib import sha256
from importlib.resources import files

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.page.files import folders
from api.settings import Settings

MAX_OWN_BYTES = 300_000
OWN = ("js", "css", "html", "svg")
VENDOR = files("planner.report") / "assets" / "vendor"


def own_files() -> dict[str, str]:
    """Text of every file that was written here, by name."""
    return {
        file.name: file.read_text()
        for folder in folders()[:2]
        for file in folder.iterdir()
        if file.name.rpartition(".")[2] in OWN
    }


def test_the_page_and_its_files_are_answered_without_a_key(client: TestClient) -> None:
    for path in ("/", "/page/app.js", "/page/memory.js", "/page/style.css", "/page/echarts.common.min.js"):
        answer = client.get(path)
        assert answer.status_code == 200, path
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_file_that_has_not_changed_is_not_sent_again(client: TestClient) -> None:
    tag = client.get("/page/app.js").headers["etag"]
    assert client.get("/page/app.js", headers={"If-None-Match": tag}).status_code == 304


@pytest.mark.parametrize(
    "name", ["none.js", "..%2ffiles.py", "files.py", "__init__.py", "%2e%2e/app.py", "echarts.LICENSE"]
)
def test_nothing_else_of_the_package_is_answered(client: TestClient, name: str) -> None:
    assert client.get(f"/page/{name}").status_code in {404, 405}


def test_own_code_stays_small_and_needs_no_markup_from_text_nor_evaluation() -> None:
    own = own_files()
    assert sum(len(text.encode()) for text in own.values()) <= MAX_OWN_BYTES
    for name, text in own.items():
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
        ), name
        assert not re.search(r"https?://(?!www\.w3\.org/)", text), f"{name} names another server"


def test_every_module_that_is_imported_exists_and_is_loaded_ahead() -> None:
    own = own_files()
    page = own["index.html"]
    for name, text in own.items():
        for other in re.findall(r'from "(?:\./|/page/)([a-z_]+\.js)"', text):
            assert other in own, f"{name} imports {other}"
    ahead = set(re.findall(r'modulepreload" href="/page/([a-z_]+\.js)"', page))
    needed = {name for name in own if name.endswith(".js")} - {"app.js", "early.js", "report.js"}
    assert ahead == needed


def test_no_inline_script_or_style_stands_in_the_page() -> None:
    page = own_files()["index.html"]
    assert re.findall(r"<script(?![^>]*\bsrc=)", page) == []
    assert "<style" not in page
    assert not re.search(r"\son[a-z]+=|\sstyle=", page)


def test_libraries_are_their_vendors_and_keep_their_licences() -> None:
    for name, about in json.loads((VENDOR / "VENDOR.json").read_text()).items():
        content = (VENDOR / name).read_bytes()
        assert sha256(content).hexdigest() == about["sha256"]
        assert b"new Function" not in content
        assert about["version"]
    assert "Apache License" in (VENDOR / "echarts.LICENSE").read_text()
    assert "Redistribution and use" in (VENDOR / "smol_toml.LICENSE").read_text()


def test_views_of_a_strategy_are_given_and_an_illegal_one_is_refused(client: TestClient) -> None:
    body = {
        "model": {"kind": "catalog", "name": "llama-3.2-1b"},
        "cluster": {"kind": "preset", "name": "dgx-h100", "devices": 8},
        "job": {"seq_len": 2048, "global_batch": 32},
        "strategy": "tp=2,pp=2",
    }
    view = client.post("/v1/views", json=body).json()
    assert set(view) == {"evaluation", "timeline", "grid", "facts", "question"}
    same = client.post("/v1/evaluations", json={**body, "strategies": [body["strategy"]], "strategy": None})
    assert same.status_code == 422  # an unknown key
    refused = client.post("/v1/views", json=body | {"strategy": "tp=3"})
    assert refused.status_code == 422
    assert refused.json()["type"] == "/problems/illegal_strategy"


def test_with_keys_the_page_is_there_and_its_calls_want_one() -> None:
    from api.keys import FileKey

    settings = Settings(file_keys=(FileKey(sha256=sha256(b"a key of sixteen").hexdigest(), scope="admin"),))
    client = TestClient(create_app(settings), base_url="http://127.0.0.1:8000")
    assert client.get("/").status_code == 200
    assert client.get("/page/app.js").status_code == 200
    assert client.get("/v1/catalog/models").status_code == 401
