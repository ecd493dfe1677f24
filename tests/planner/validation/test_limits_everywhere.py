"""No prediction on any cluster of the catalog is above a peak: random models, sizes, precisions and layouts."""

import random

import pytest

from cost_models.errors import BadInput, IllegalStrategy
from cost_models.profiles import list_clusters, load_preset
from cost_models.specs.device import DeviceSpec
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import StrategyRequest
from planner.answers import Prediction
from planner.evaluation import Context, evaluate_many
from planner.intervals import spread_of
from planner.provenance import provenance
from planner.request import CatalogModel, PresetCluster
from planner.situation import Situation, resolve

DENSE = ("llama-3.1-8b", "llama-3.1-70b", "gpt-neox-20b", "gemma-2-2b", "bert-large", "falcon-40b")
MIXTURES = ("mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3")
VISION = ("resnet-50", "vit-large-patch16-224")
ENGINES = ("megatron", "fsdp2", "ddp", "deepspeed", "torchtitan")
PRECISIONS = ("bf16", "fp16", "fp8", "mxfp8", "nvfp4", "tf32", "fp32")
PASSES = 3.0
"""Products of a layer that read its weights: forward, input gradient, and the weight gradient writes as much."""


def sampled(preset: str) -> list[Situation]:
    generator = random.Random(preset)
    device = load_preset(preset).device
    found: list[Situation] = []
    for model in (
        generator.choice(DENSE),
        generator.choice(DENSE),
        generator.choice(MIXTURES),
        generator.choice(VISION),
    ):
        usable = [name for name in PRECISIONS if device.supports(name)]
        job = JobRequest(
            seq_len=None if model in VISION else generator.choice((512, 2048)),
            global_batch=generator.choice((64, 256)),
            precision=generator.choice(usable),
            engine=generator.choice(ENGINES),
        )
        try:
            found.append(resolve(CatalogModel(name=model), PresetCluster(name=preset, devices=16), job))
        except BadInput:  # an engine that does not train this kind of model, or not in this precision
            continue
    return found


def layouts(situation: Situation) -> list[Prediction]:
    generator = random.Random(situation.model.name)
    requests = [
        StrategyRequest(
            tp=generator.choice((1, 1, 2, 4)),
            pp=generator.choice((1, 1, 2, 4)),
            ep=generator.choice((1, 2, 8)) if situation.model.is_moe else 1,
            mbs=generator.choice((1, 2, 4)),
            recompute=generator.choice(("none", "full")),
        )
        for _ in range(10)
    ]
    return [p for p in evaluate_many(situation, requests) if not isinstance(p, IllegalStrategy)]


def fastest_peak(device: DeviceSpec, precision: str) -> float:
    """The rate that no mix of kernels of a job exceeds."""
    return max(device.peak(precision), device.peak("bf16" if device.supports("bf16") else "fp16"))


@pytest.mark.parametrize("preset", [name for name in list_clusters() if name != "cpu"])
def test_no_layout_is_faster_than_its_devices(preset: str):
    seen = 0
    for situation in sampled(preset):
        device = situation.cluster.device
        work = situation.model_flops / situation.cluster.num_devices
        for prediction in layouts(situation):
            seen += 1
            strategy, step_s = prediction.strategy, prediction.step_s
            assert work / fastest_peak(device, situation.job.precision.value) < step_s
            # every weight of a dense rank is read for each product of each micro-batch
            micro = situation.job.global_batch / (strategy.mbs * strategy.dp)
            model = situation.model
            inner = situation.counts.parameters - 2 * model.vocab_size * model.hidden_size
            weights = inner / (strategy.tp * strategy.pp)
            if not (situation.model.is_moe or situation.model.is_vision):
                moved = PASSES * 0.5 * micro * weights  # at least half a byte, as in nvfp4
                assert moved / device.memory_bytes_per_s.value < step_s
            assert prediction.step_s_low < step_s < prediction.step_s_high
            assert sum(prediction.breakdown_s.values()) == pytest.approx(step_s, rel=1e-9)
    assert seen >= 4


def test_devices_without_runs_are_wider_and_say_where_their_figures_come_from():
    def question(preset: str) -> Situation:
        job = JobRequest(seq_len=2048, global_batch=64, precision="bf16", engine="megatron")
        return resolve(CatalogModel(name="llama-3.1-8b"), PresetCluster(name=preset, devices=8), job)

    known = spread_of(question("dgx-h100"))
    named = provenance(question("dgx-h100"), Context.of(question("dgx-h100")).pricer)
    assert (named["compute"], named["compute_runs"]) == ("fitted", "of h100-sxm-80gb")
    others = provenance(question("dgx-h200"), Context.of(question("dgx-h200")).pricer)
    assert others["compute_runs"] == "of other hopper devices"
    for preset in ("mi300x", "mi325x", "mi355x", "l40s", "rtx-4090", "l4"):
        situation = question(preset)
        rests = provenance(situation, Context.of(situation).pricer)
        assert rests["compute"] == "datasheet"
        assert rests["compute_runs"].startswith(f"none of {situation.cluster.device.architecture}")
        assert spread_of(situation).common > 1.5 * known.common, preset
        assert situation.cluster.device.memory_bytes_per_s.kind == "datasheet"
