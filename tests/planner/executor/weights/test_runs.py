"""Runs that begin with a folder's weights: the first loss, what the last step leaves, what a resumed run does."""

import gc
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from planner.executor.data import Sampler, open_source
from planner.executor.run import run_order
from planner.executor.weights.stored import read_directory
from tests.planner.executor.model.library import library_model, load_model_of, stored_values
from tests.planner.executor.orders import DEEPSEEK, tiny_order
from tests.planner.executor.ranks import run_ranks
from tests.planner.executor.weights.families import FAMILIES
from tests.planner.executor.weights.ranks_at_work import SEQUENCE, Done, Work, first_steps, write_without_room

NAME = "llama tied"
pytestmark = [
    # Agent and workers of torch leave files to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def _collect() -> Iterator[None]:
    yield
    gc.collect()


@pytest.mark.system
def test_a_run_begins_with_the_weights_and_a_resumed_one_does_not(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "written"
    library = library_model(FAMILIES[NAME], 1)
    library.save_pretrained(source)
    config = json.loads((source / "config.json").read_text())
    np.save(tmp_path / "tokens.npy", np.random.default_rng(0).integers(3, 60, 400).astype(np.uint16))
    paths = {"weights": source, "data": tmp_path / "tokens.npy", "checkpoint": tmp_path / "kept"}
    stated = {**{key: str(path) for key, path in paths.items()}, "lr": 1e-12, "weight_decay": 0.0}
    order = tiny_order("pp=2", devices=2, config=config, steps=1, **stated)
    first = run_order(order)
    batch = Sampler(open_source(order), order.situation.job.global_batch, (0, 1)).micro_batches(1)[0]
    with torch.no_grad():
        logits = library(batch.inputs).logits
    expected = nn.functional.cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
    assert abs(first.steps[0].loss - float(expected)) < 1e-5
    told = first.to_json()["weights"]
    assert isinstance(told, dict)
    # Both stages hold the table that the head shares; blocks are half each.
    assert max(told["read_bytes"]) < 0.7 * told["bytes"]
    assert (told["dtypes"], told["ignored"], first.to_json()["saved"]) == (["F32"], [], None)

    # Other weights in the folder by now: whoever read them again would write them.
    library_model(FAMILIES[NAME], 9).save_pretrained(source)
    more = {**stated, "resume": "auto", "save_weights": str(target), "save_dtype": "bf16"}
    report = run_order(tiny_order("dp=1", config=config, steps=2, **more)).to_json()
    assert report["weights"] is None
    assert isinstance(report["saved"], dict)
    assert (report["saved"]["dtype"], report["saved"]["files"]) == ("bf16", 1)
    assert json.loads((target / "config.json").read_text())["dtype"] == "bfloat16"
    written = load_model_of(target).state_dict()
    for name, tensor in library.state_dict().items():
        torch.testing.assert_close(written[name], tensor, rtol=2**-8, atol=1e-6)


def _work(folder: Path, strategy: str, target: Path | None, *, train_mtp: bool) -> Work:
    torch.manual_seed(0)
    ids, targets = torch.randint(3, 90, (2, 8, SEQUENCE)).unbind(0)
    options = {"save_weights": str(target)} if target else {}
    return Work(folder, strategy, ids, targets, "torch", options, {"options": {"job.train_mtp": train_mtp}})


def test_prediction_layers_are_written_and_read_or_passed_over(tmp_path: Path) -> None:
    config, both = tmp_path / "config", tmp_path / "both"
    config.mkdir()
    stated = {**DEEPSEEK, "num_nextn_predict_layers": 1, "dtype": "float32"}
    (config / "config.json").write_text(json.dumps(stated))
    works = [
        _work(config, "pp=2", both, train_mtp=True),  # from a config alone: drawn from the seed
        _work(both, "tp=2", None, train_mtp=True),
        _work(both, "dp=2,zero=3", tmp_path / "plain", train_mtp=False),
        _work(tmp_path / "plain", "dp=2", None, train_mtp=False),
    ]
    drawn, read, plain, again = ([*ranks] for ranks in zip(*run_ranks(first_steps, 2, works), strict=True))
    assert _loss(read) == _close(_loss(drawn))
    assert _loss(plain) == _close(_loss(again))
    assert _loss(plain) < _loss(read)  # without the predictions' share
    assert drawn[0].loaded is None
    assert plain[0].loaded is not None
    # Two blocks, so the prediction layer is the third; nothing else of the folder is left aside.
    there = set(read_directory(both).tensors)
    assert set(plain[0].loaded.skipped) == {key for key in there if key.startswith("model.layers.2.")}
    assert "model.layers.2.eh_proj.weight" in there
    found = stored_values(read_directory(tmp_path / "plain"))
    assert there - set(plain[0].loaded.skipped) == set(found)
    assert json.loads((tmp_path / "plain" / "config.json").read_text())["num_nextn_predict_layers"] == 0


def test_a_full_disk_ends_every_rank_and_leaves_no_folder(tmp_path: Path) -> None:
    config, target = tmp_path / "config", tmp_path / "written"
    config.mkdir()
    (config / "config.json").write_text(json.dumps(FAMILIES["qwen3"]))
    left = tmp_path / "written.partial-of-a-killed-run"
    left.mkdir()
    work = _work(config, "tp=2", target, train_mtp=False)
    work.options["save_shard_bytes"] = 400_000  # two files, one for each rank
    found = run_ranks(write_without_room, 2, work, 50_000)
    assert found[0] == found[1]
    assert found[0][0] == "disk_full"
    assert str(target) in found[0][1]
    assert not target.exists()
    assert not left.exists()


def _loss(ranks: list[Done]) -> float:
    return ranks[0].loss


def _close(value: float) -> object:
    return pytest.approx(value, abs=1e-5)
