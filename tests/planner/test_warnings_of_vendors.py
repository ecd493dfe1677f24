"""What runs on one vendor's devices is refused on others, or marked; of devices that were seen nothing is said."""

from collections.abc import Mapping

import pytest

from cost_models.errors import InvalidJob
from cost_models.specs.job import JobRequest, Scalar
from cost_models.specs.strategy import StrategyRequest
from planner.answers import Prediction
from planner.evaluation import evaluate_many
from planner.request import CatalogModel, PresetCluster
from planner.situation import resolve


def prediction(cluster: str, options: Mapping[str, Scalar] | None = None) -> Prediction:
    job = JobRequest(seq_len=2048, global_batch=16, options=dict(options or {}))
    situation = resolve(CatalogModel(name="olmoe-1b-7b"), PresetCluster(name=cluster), job)
    (found,) = evaluate_many(situation, [StrategyRequest(tp=1, ep=8, dp=8, mbs=1)])
    assert isinstance(found, Prediction)
    return found


@pytest.mark.parametrize(
    ("cluster", "said"), [("mi300x", True), ("mi355x", True), ("l40s", False), ("dgx-h200", False)]
)
def test_software_seen_on_another_vendors_devices_is_marked(cluster: str, said: bool):
    warnings = prediction(cluster).warnings
    assert any("NVIDIA devices alone" in warning for warning in warnings) == said


def test_options_that_a_port_took_over_late_are_marked():
    options: dict[str, Scalar] = {"engine.tp_comm_overlap": True, "engine.cuda_graphs": True}
    ours = [w for w in prediction("mi300x", options).warnings if "Transformer Engine of 2026" in w]
    assert [warning.split(" ")[0] for warning in ours] == ["engine.tp_comm_overlap", "engine.cuda_graphs"]
    assert not [w for w in prediction("dgx-h100", options).warnings if "Transformer Engine of 2026" in w]


@pytest.mark.parametrize("cluster", ["mi300x", "l40s", "dgx-a100"])
def test_kernels_of_newer_devices_are_refused(cluster: str):
    options: dict[str, Scalar] = {"job.moe_dispatcher": "hybridep"}
    with pytest.raises(InvalidJob, match="use alltoall or deepep"):
        prediction(cluster, options)
    assert prediction("dgx-h200", options).step_s > 0.0


def test_reductions_in_switches_are_for_nvlink():
    plain, sharp = (prediction("mi300x", {"engine.nvlink_sharp": found}) for found in (False, True))
    assert plain.step_s == sharp.step_s


@pytest.mark.parametrize("cluster", ["mi300x", "mi355x", "l40s", "rtx-4090", "l4"])
def test_devices_without_runs_say_so_and_are_unsure(cluster: str):
    """Architectures that no run was fitted to stand on datasheets, and their intervals are wider than an H100's."""
    found, known = prediction(cluster), prediction("dgx-h100")
    assert found.provenance["compute"] == "datasheet"
    assert "none of" in found.provenance["compute_runs"]
    assert found.step_s_high / found.step_s > known.step_s_high / known.step_s
