"""Predictions of a device that was measured: whose they are, what they say of it, and what they leave alone."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from cost_models.errors import BadInput
from cost_models.profiler.writer import write_profile
from cost_models.profiles import MEASURED_VARIABLE, read_profile
from cost_models.profiles.device_file import architecture_of, cluster_text, stand_in
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import parse_strategy
from planner.answers import Prediction
from planner.catalog import describe_entry, list_entries
from planner.evaluation import evaluate, evaluate_many
from planner.intervals import spread_of
from planner.request import CatalogModel, PresetCluster, SpecCluster
from planner.situation import Situation, resolve

MEASURED = Path(__file__).parents[1] / "data" / "measured"
EXAMPLE = next((MEASURED / "h200-sxm").iterdir())
JOB = JobRequest(seq_len=4096, global_batch=16, engine="torch")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv(MEASURED_VARIABLE, str(MEASURED))
    yield


def question(cluster: str = "dgx-h200", model: str = "llama-3.2-1b") -> Situation:
    return resolve(CatalogModel(name=model), PresetCluster(name=cluster, devices=8), JOB)


def predicted(situation: Situation, text: str = "dp=8,mbs=1,zero=0") -> Prediction:
    return evaluate(situation, parse_strategy(text))


def test_a_measured_device_is_predicted_from_its_profile(monkeypatch: pytest.MonkeyPatch):
    plain = predicted(question())
    assert "measured_profile" not in plain.provenance
    monkeypatch.setenv(MEASURED_VARIABLE, str(MEASURED))
    found = predicted(question())
    assert found.step_s != plain.step_s
    assert found.provenance["compute"] == "measured"
    assert found.provenance["measured_profile"].startswith("h200-sxm/20260101-0000-torch-2.11.0 ")
    for family in ("gemm", "attention", "norm:rms", "activation:silu:gated", "cross_entropy", "embedding"):
        assert f"{family} measured" in found.provenance["compute_families"]
    assert "all_reduce measured for 2, 4, 8 ranks" in found.provenance["communication_families"]
    monkeypatch.setenv(MEASURED_VARIABLE, "")
    assert predicted(question()).step_s == plain.step_s


def test_memory_and_context_are_those_of_the_profile(measured: None):
    device = question().cluster.device
    assert (device.capacity_bytes.value, device.context_bytes.value) == (150754820096.0, 6e8)
    assert device.context_bytes.kind == "measured"
    assert device.context_bytes.source.startswith("measured profile h200-sxm/")


def test_other_devices_are_predicted_as_before_to_the_last_bit(monkeypatch: pytest.MonkeyPatch):
    texts = ("tp=8", "dp=8", "pp=2,tp=4,mbs=2", "tp=2,dp=4,zero=1,recompute=full")
    strategies = [parse_strategy(text) for text in texts]
    before = [one.to_json() for one in evaluate_many(question("dgx-h100"), strategies)]
    monkeypatch.setenv(MEASURED_VARIABLE, str(MEASURED))
    after = [one.to_json() for one in evaluate_many(question("dgx-h100"), strategies)]
    assert json.dumps(before) == json.dumps(after)


def test_scalar_and_bulk_predictions_are_one(measured: None):
    texts = ("dp=8,mbs=1,zero=0", "tp=2,dp=4,mbs=1,zero=0", "tp=8,mbs=2", "pp=2,dp=4,mbs=1,zero=0")
    together = evaluate_many(question(), [parse_strategy(text) for text in texts])
    assert [one.step_s for one in together] == [predicted(question(), text).step_s for text in texts]


def test_what_lies_beyond_the_profile_is_said(
    measured: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    within = predicted(question())
    assert not any("beyond the sizes" in warning for warning in within.warnings)
    wide = predicted(question(model="gpt2"), "tp=4,dp=2,mbs=1,zero=0")
    assert any("beyond the sizes of profile h200-sxm" in warning for warning in wide.warnings)
    profile = read_profile(EXAMPLE)
    cut = profile.manifest.model_copy(update={"complete": False})
    write_profile(tmp_path / "h200-sxm" / EXAMPLE.name, cut, profile.points[:40])
    monkeypatch.setenv(MEASURED_VARIABLE, str(tmp_path))
    part = predicted(question())
    assert any("was cut short and is used as far as it goes" in warning for warning in part.warnings)
    assert part.provenance["compute"] != "measured"
    assert "gemm measured" in part.provenance["compute_families"]


def test_a_measured_device_is_no_unseen_one(measured: None):
    found = spread_of(question())
    assert found.common > 0.0


def test_a_corrupt_profile_stops_the_prediction_by_file_and_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = Path(shutil.copytree(EXAMPLE, tmp_path / "h200-sxm" / EXAMPLE.name))
    path = folder / "points.jsonl"
    path.write_text(path.read_text().replace('"seconds": ', '"seconds": 1', 1))
    monkeypatch.setenv(MEASURED_VARIABLE, str(tmp_path))
    with pytest.raises(BadInput, match=r"points\.jsonl line 1 "):
        predicted(question())
    line = next(entry for entry in list_entries("devices") if entry["name"] == "h200-sxm")
    assert "points.jsonl line 1" in str(line["measured"])


def test_the_catalog_shows_what_is_covered(measured: None):
    lines = {entry["name"]: entry["measured"] for entry in list_entries("devices")}
    assert str(lines["h200-sxm"]).startswith("20260101-0000-torch-2.11.0: 11 kernels, 45 messages")
    assert lines["h100-sxm-80gb"] == ""
    covered = describe_entry("devices", "h200-sxm")["measured"]
    assert covered["complete"] is True
    assert covered["points"]["gemm"] == 27


def test_a_device_outside_the_catalog_becomes_a_cluster_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    profile = read_profile(EXAMPLE)
    with pytest.raises(BadInput, match="a device of the catalog"):
        cluster_text(profile, 8)
    manifest = profile.manifest.model_copy(update={"device": "nvidia-x1"})
    folder = tmp_path / "nvidia-x1" / EXAMPLE.name
    write_profile(folder, manifest, profile.points)
    monkeypatch.setenv(MEASURED_VARIABLE, str(tmp_path))
    import tomllib

    spec = tomllib.loads(cluster_text(read_profile(folder), 8))
    found = evaluate(
        resolve(CatalogModel(name="llama-3.2-1b"), SpecCluster(spec=spec), JOB),
        parse_strategy("dp=8,mbs=1,zero=0"),
    )
    assert found.provenance["compute"] == "measured"
    assert found.provenance["measured_profile"].startswith("nvidia-x1/")
    # the best rate of its products, over what the curve of Hopper reaches at most
    assert spec["groups"][0]["device"]["architecture"] == "hopper"
    bare = profile.manifest.model_copy(update={"device": "nvidia-x2"})
    write_profile(tmp_path / "nvidia-x2" / EXAMPLE.name, bare, profile.of("fact"))
    with pytest.raises(BadInput, match="holds no matrix product"):
        cluster_text(read_profile(tmp_path / "nvidia-x2" / EXAMPLE.name), 1)


@pytest.mark.parametrize(
    ("capability", "architecture"),
    [
        ("7.0", "volta"),
        ("8.0", "ampere"),
        ("8.9", "ada"),
        ("9.0", "hopper"),
        ("10.3", "blackwell"),
        ("12.0", "blackwell"),
        ("gfx90a:sramecc+", "cdna2"),
        ("gfx942", "cdna3"),
        ("gfx950", "cdna4"),
        ("", "cpu"),
    ],
)
def test_capabilities_have_architectures(capability: str, architecture: str):
    assert architecture_of(capability) == architecture
    assert stand_in(capability)
