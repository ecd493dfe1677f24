"""A run that begins with the weights of a folder: only from a configured root, and with a config inside."""

from pathlib import Path
from typing import Any

from tests.api.runs.conftest import Serve, launch, store_plan, until


def test_weights_of_a_folder_come_from_a_configured_root(
    serve_runs: Serve, plan_document: dict[str, Any], tmp_path: Path
) -> None:
    root = tmp_path / "root"
    for folder in (root / "tiny", root / "empty", tmp_path / "other"):
        folder.mkdir(parents=True)
    for folder in (root / "tiny", tmp_path / "other"):
        (folder / "config.json").write_text("{}")
    (root / "link").symlink_to(tmp_path / "other")
    with serve_runs(run_roots=(root,)) as client:
        plan_id = store_plan(client.app.state.database, plan_document)  # type: ignore[attr-defined]
        refused = {"../other": "folders that runs may read", "link": "folders that runs may read"}
        refused |= {"missing": "no such file or folder", "empty": "no folder with config.json"}
        refused |= {"tiny/config.json": "no folder with config.json"}
        for path, words in refused.items():
            body = {"model_source": {"kind": "directory", "path": path}}
            answer = client.post(f"/v1/plans/{plan_id}/runs", json=body)
            assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "/model_source/path")
            assert words in answer.json()["detail"]
        run = launch(client, plan_document, {"model_source": {"kind": "directory", "path": "tiny"}})
        until(client, run, "succeeded")
        command = client.app.state.keeper.folder_of(run.rpartition("/")[2]).read("run.json")["command"]  # type: ignore[attr-defined]
    assert command[command.index("--weights") + 1] == str(root / "tiny")


def test_without_a_root_no_folder_is_read(serve_runs: Serve, plan_document: dict[str, Any]) -> None:
    with serve_runs() as client:
        plan_id = store_plan(client.app.state.database, plan_document)  # type: ignore[attr-defined]
        body = {"model_source": {"kind": "directory", "path": "tiny"}}
        answer = client.post(f"/v1/plans/{plan_id}/runs", json=body)
    assert (answer.status_code, "--run-root" in answer.json()["detail"]) == (422, True)
