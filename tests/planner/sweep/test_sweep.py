"""A sweep's items, its store, its pool and its table; what is done is not asked again."""

import csv
import json
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from cost_models.errors import BadInput
from planner.cli.sweep_file import sweep_from_file
from planner.request import PlanRequest
from planner.sweep import Store, run_sweep, solve_all, solve_item, sweep_items
from planner.sweep.items import item_key
from planner.sweep.pool import DIED
from planner.sweep.solve import FAILED

PINS = {"cp": 1, "pp": 1, "recompute": "full"}

FILE = """
models: [pythia-70m]
clusters: ["dgx-a100:1,2", "dgx-1:2"]
seq_lens: [1024]
global_batches: [8, 16]
search: {pins: {cp: 1, pp: 1, recompute: full}}
"""


@pytest.fixture
def items(tmp_path):
    return list(sweep_items(sweep_from_file(str(write(tmp_path, FILE)))))


def write(folder: Path, text: str, name: str = "sweep.yaml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def counted(monkeypatch):
    """Count what is really solved."""
    from planner.sweep import pool

    asked = []
    real = pool.solve_request

    def solve(request):
        asked.append(request)
        return real(request)

    monkeypatch.setattr(pool, "solve_request", solve)
    return asked


def test_items_are_the_product_in_order(items):
    shown = [(item.labels["cluster"], item.labels["global_batch"]) for item in items]
    assert shown == [(c, b) for c in ("dgx-a100:1", "dgx-a100:2", "dgx-1:2") for b in (8, 16)]
    assert len({item.key for item in items}) == 6


def test_equal_questions_are_asked_once_and_keys_follow_the_question(tmp_path, items):
    text = FILE.replace("[8, 16]", "[8, 16, 8]").replace('"dgx-1:2"', '"dgx-1:2", "dgx-a100:2"')
    again = list(sweep_items(sweep_from_file(str(write(tmp_path, text)))))
    assert [item.key for item in again] == [item.key for item in items]
    named = items[0].request.model_copy(update={"name": "a name"})
    assert item_key(named) == items[0].key
    other = PlanRequest.model_validate(items[0].request.model_dump() | {"search": {"seed": 1}})
    assert item_key(other) != items[0].key


def test_a_sweep_resumes_and_keeps_refusals_with_their_rule(items, tmp_path, monkeypatch):
    asked = counted(monkeypatch)
    with Store(tmp_path / "out") as store:
        first = run_sweep(items[:3], store, jobs=1)
    assert (len(asked), first.num_skipped, first.num_planned) == (3, 0, 3)
    seen = []
    with Store(tmp_path / "out") as store:
        report = run_sweep(items, store, jobs=1, on_row=lambda done, total, row: seen.append((done, total)))
    assert (len(asked), report.num_skipped) == (6, 3)
    assert seen == [(4, 6), (5, 6), (6, 6)]
    assert report.num_planned == 4
    refused = [row for row in report.rows if row["status"] == "refused"]
    assert [row["cluster"] for row in refused] == ["dgx-1:2"] * 2
    assert all("bf16" in row["detail"] for row in refused)  # V100 has none
    payload = report.to_json()
    assert payload["by_status"] == {"optimal": 4, "refused": 2}
    assert "document" not in payload["rows"][0]
    with (tmp_path / "out" / "results.csv").open(encoding="utf-8") as stream:
        table = list(csv.DictReader(stream))
    assert [row["cluster"] for row in table] == [item.labels["cluster"] for item in items]
    assert float(table[0]["step_s"]) == report.rows[0]["step_s"]
    assert json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))["planned"] == 4


def test_an_interrupt_keeps_what_is_done(items, tmp_path, monkeypatch):
    def interrupted(done, total, row):
        raise KeyboardInterrupt

    with Store(tmp_path) as store, pytest.raises(KeyboardInterrupt):
        run_sweep(items, store, jobs=1, on_row=interrupted)
    asked = counted(monkeypatch)
    with Store(tmp_path) as store:
        assert run_sweep(items, store, jobs=1).num_skipped == 1
    assert len(asked) == 5


def test_a_torn_line_is_dropped_and_a_failed_row_is_tried_again(items, tmp_path):
    with Store(tmp_path) as store:
        store.add({"key": items[0].key, "status": "optimal"})
        store.add({"key": items[1].key, "status": FAILED})
    with (tmp_path / "results.jsonl").open("ab") as stream:
        stream.write(b'{"key": "cut sh')
    with Store(tmp_path) as store:
        assert [store.has(item.key) for item in items[:3]] == [True, False, False]
        store.add({"key": items[2].key, "status": "infeasible"})
    with Store(tmp_path) as store:
        assert store.has(items[2].key)
        assert len(store.rows) == 3


def test_two_sweeps_do_not_write_to_one_folder(tmp_path):
    with Store(tmp_path), pytest.raises(BadInput, match="another sweep"), Store(tmp_path):
        pass


def test_a_row_carries_a_plan_file(items):
    row = solve_item(items[0])
    assert row["status"] == "optimal"
    assert row["document"]["result"]["best"]["step_s"] == row["step_s"]
    assert row["document"]["request"]["job"]["global_batch"] == 8


def test_a_bug_of_ours_is_a_failed_row(items, monkeypatch):
    import planner.make_plan

    def broken(*_):
        raise RuntimeError("no luck")

    monkeypatch.setattr(planner.make_plan, "make_plan", broken)
    row = solve_item(items[0])
    assert (row["status"], row["rule"]) == (FAILED, "internal_error")
    assert "no luck" in row["detail"]


@pytest.mark.matrix
def test_a_worker_that_dies_takes_nothing_with_it(items):
    rows = {}
    for index, row in solve_all([item.request for item in items[:4]], jobs=2):
        rows[index] = row
        if len(rows) == 1:
            os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
    assert sorted(rows) == [0, 1, 2, 3]
    assert all(row["status"] == "optimal" or row["detail"] == DIED for row in rows.values())
    assert sum(row["status"] == "optimal" for row in rows.values()) >= 3
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("models: [pythia-70m]\nclusters: [l4]", ("global_batches",)),
        ("models: [pythia-70m]\nclusters: [l4]\nbatch: 8", ("batch", "keys:")),
        ("models: [pythia-71m]\nclusters: [l4]\nglobal_batch: 8", ("pythia-70m",)),
        ("models: [pythia-70m]\nclusters: [l5]\nglobal_batch: 8", ("planner catalog clusters",)),
        ("models: [pythia-70m]\nclusters: ['l4:0']\nglobal_batch: 8", ("at least 1",)),
        ("models: [pythia-70m]\nclusters: [l4]\nglobal_batch: 0", ("global_batches",)),
        ("models: [pythia-70m]\nclusters: [l4]\nglobal_batch: 8\nsearch: 3", ("search",)),
        ("models: [3]\nclusters: [l4]\nglobal_batch: 8", ("models",)),
        ("model: pythia-70m\nmodels: [pythia-70m]\nclusters: [l4]\nglobal_batch: 8", ("twice",)),
        ("models: [pythia-70m]\nclusters: [l4]\nglobal_batch: 8\nsearch: {top_k: -1}", ("top_k",)),
    ],
)
def test_a_file_that_is_wrong_says_where(tmp_path, text, words):
    with pytest.raises(BadInput) as caught:
        sweep_from_file(str(write(tmp_path, text)))
    assert all(word in caught.value.detail for word in words)


def test_paths_are_beside_the_file_and_formats_agree(tmp_path):
    config = '{"model_type": "gpt2", "n_layer": 2, "n_head": 2, "n_embd": 64, "vocab_size": 512, "n_positions": 128}'
    write(tmp_path, config, "little.json")
    yaml = write(
        tmp_path, "model: little.json\ncluster: {name: l4, devices: [1, 2]}\nglobal_batch: 8\nseq_len: 64"
    )
    toml = write(
        tmp_path, 'model = "little.json"\ncluster = "l4:1,2"\nglobal_batch = 8\nseq_len = 64', "a.toml"
    )
    found = [list(sweep_items(sweep_from_file(str(path)))) for path in (yaml, toml)]
    assert [item.key for item in found[0]] == [item.key for item in found[1]]
    assert [item.labels["model"] for item in found[0]] == ["little", "little"]


def test_the_command_line(tmp_path, monkeypatch, capsys):
    from planner.cli.group import planner

    text = FILE.replace("[8, 16]", "[8]").replace('"dgx-a100:1,2"', '"dgx-a100:1"')
    path = write(tmp_path, text)
    codes, outputs = [], []
    for _ in range(2):
        with pytest.raises(SystemExit) as caught:
            planner.main(["sweep", str(path), "--jobs", "1", "--json", "--progress", "jsonl"])
        codes.append(caught.value.code)
        outputs.append(capsys.readouterr())
    payloads = [json.loads(output.out) for output in outputs]
    assert codes == [1, 1]  # a row has no plan
    assert [payload["skipped"] for payload in payloads] == [0, 2]
    assert payloads[0]["rows"] == payloads[1]["rows"]
    events = [json.loads(line) for line in outputs[0].err.splitlines()]
    assert [event["done"] for event in events] == [1, 2]
    assert Path(payloads[0]["output"]) == tmp_path / "sweep-results"
