"""Does it fit? Situations of real users: each gets the verdict that it had, in the phase where it failed."""

import json
from pathlib import Path
from typing import Any

import pytest

from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import parse_strategy
from cost_models.units import GIB
from planner.answers import MemoryPrediction, Prediction
from planner.evaluation import evaluate
from planner.request import CatalogModel, HuggingFaceModel, LayersModel, ModelInput, PresetCluster
from planner.situation import resolve
from tests.planner.cases import every_run

DATA = json.loads((Path(__file__).parents[1] / "data" / "cases_memory.json").read_text(encoding="utf-8"))
JOB_KEYS = ("seq_len", "global_batch", "precision", "optimizer", "engine", "options")


def model_of(named: str | dict[str, Any]) -> ModelInput:
    spec = DATA["models"].get(named) if isinstance(named, str) else named
    if spec is None:
        return CatalogModel(name=str(named))
    return LayersModel(spec=spec) if "layers_file" in spec else HuggingFaceModel(config=spec)


def predict(run: dict[str, Any]) -> Prediction:
    job = JobRequest(**{key: run[key] for key in JOB_KEYS if key in run})
    cluster = PresetCluster(name=run["cluster"], devices=run["devices"])
    return evaluate(resolve(model_of(run["model"]), cluster, job), parse_strategy(run["strategy"]))


def reading(memory: MemoryPrediction, counter: str) -> float:
    """Bytes as the source counted them."""
    if counter == "last_allocated":
        return memory.stages[-1].allocated_bytes
    key = "device_used_bytes" if counter == "device_used" else "allocated_bytes"
    return max(getattr(stage, key) for stage in memory.stages)


@pytest.mark.parametrize("run", every_run(DATA))
def test_the_verdict_is_what_happened(run):
    found = predict(run)
    assert found.verdict in run["verdicts"]
    if "phase" in run:
        assert found.memory.peak_phase == run["phase"]
    if "reading" in run:
        seen = run["reading"]
        assert reading(found.memory, seen["counter"]) / GIB == pytest.approx(seen["gib"], rel=seen["within"])


def test_every_case_names_its_source():
    assert all(case["source"] for case in DATA["cases"])
    assert len({case["id"] for case in DATA["cases"]}) == len(DATA["cases"])
