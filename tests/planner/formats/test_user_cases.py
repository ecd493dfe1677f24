"""Situations of real users in their frameworks' own words: read, then refused by the true rule or given the verdict."""

import json
from pathlib import Path
from typing import Any

import pytest

from cost_models.errors import BadInput
from planner.answers import Prediction
from planner.evaluation import evaluate
from planner.formats.registry import read_settings
from planner.formats.settings import Beside
from planner.request import CatalogModel, PresetCluster
from planner.situation import resolve_cluster, resolve_model, situate

DATA = json.loads((Path(__file__).parents[2] / "data" / "cases_settings.json").read_text(encoding="utf-8"))


def predicted(case: dict[str, Any]) -> Prediction:
    name, _, devices = case["cluster"].partition(":")
    cluster = resolve_cluster(PresetCluster(name=name, devices=int(devices)))
    model = resolve_model(CatalogModel(name=case["model"])) if "model" in case else None
    job = case.get("job", {"seq_len": 4096} if case["format"] == "deepspeed" else {})
    beside = Beside(int(devices), model, job, case.get("engine", ""))
    found = read_settings(case["settings"], case["format"], beside)
    options = found.job.options | case.get("options", {})
    strategy = found.strategy
    if "recompute" in case:
        strategy = strategy.model_copy(update={"recompute": case["recompute"]})
    return evaluate(
        situate(found.model, cluster, found.job.model_copy(update={"options": options})), strategy
    )


@pytest.mark.parametrize("case", DATA["cases"], ids=lambda case: case["id"].replace(" ", "-"))
def test_the_true_rule_or_the_verdict(case: dict[str, Any]) -> None:
    if "refused" in case:
        with pytest.raises(BadInput) as caught:
            predicted(case)
        assert all(word in str(caught.value) for word in case["refused"]), str(caught.value)
        return
    prediction = predicted(case)
    meant = prediction.strategy.to_json()
    assert {key: meant[key] for key in case.get("strategy", {})} == case.get("strategy", {})
    if "fits" in case:
        assert prediction.fits is case["fits"], (
            prediction.verdict,
            prediction.memory.device_used_bytes / 2**30,
        )
