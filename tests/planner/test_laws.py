"""Laws that hold whatever the constants are, on random models, clusters, engines and layouts."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cost_models.errors import BadInput, IllegalStrategy
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.device import Figure
from cost_models.specs.strategy import parse_strategy
from planner.answers import Prediction
from planner.evaluation import evaluate
from planner.request import PlanRequest
from planner.situation import Situation, resolve

ULP = 1e-9
DENSE = ("llama-3.2-1b", "gpt2-xl", "gemma-2-9b", "qwen2.5-14b", "bert-large")
MIXTURES = ("olmoe-1b-7b", "mixtral-8x7b", "deepseek-v2-lite")
CLUSTERS = ("dgx-a100", "dgx-h100", "gb200-nvl72", "h100-pcie", "mi300x")
QUICK = settings(
    max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.filter_too_much]
)


@dataclass(frozen=True)
class Case:
    """One question and a layout for it."""

    model: str
    cluster: str
    engine: str
    seq_len: int
    layout: str

    def situation(self, batch: int = 64, **options: object) -> Situation:
        """The question, with another batch or other options."""
        return _situation(self, batch, tuple(sorted(options.items())))

    def priced(self, situation: Situation, layout: str = "") -> Prediction:
        """The prediction; a layout that is not legal ends the example."""
        try:
            return evaluate(situation, parse_strategy(layout or self.layout))
        except IllegalStrategy:
            assume(False)
            raise


@cache
def _situation(case: Case, batch: int, options: tuple[tuple[str, object], ...]) -> Situation:
    job = {"seq_len": case.seq_len, "global_batch": batch, "engine": case.engine, "options": dict(options)}
    asked = PlanRequest.model_validate(
        {
            "model": {"kind": "catalog", "name": case.model},
            "cluster": {"kind": "preset", "name": case.cluster, "devices": 16},
            "job": job,
        }
    )
    try:
        return resolve(asked.model, asked.cluster, asked.job)
    except BadInput:
        assume(False)
        raise


@st.composite
def cases(draw: Callable[..., Any], models: tuple[str, ...] = DENSE + MIXTURES) -> Case:
    """A legal question more often than not."""
    model, engine = (
        draw(st.sampled_from(models)),
        draw(st.sampled_from(("megatron", "torch", "torchtitan", "deepspeed"))),
    )
    split = {"tp": (1, 2, 4)} | ({"pp": (1, 2, 4)} if engine in ("megatron", "torch") else {})
    if model in MIXTURES and engine in ("megatron", "torch"):
        split |= {"ep": (1, 2, 4)}
    parts = [f"{axis}={draw(st.sampled_from(sizes))}" for axis, sizes in split.items()]
    recompute = draw(st.sampled_from(("none", "selective", "full:1", "full")))
    return Case(
        model,
        draw(st.sampled_from(CLUSTERS)),
        engine,
        512 if model == "bert-large" else draw(st.sampled_from((1024, 4096))),
        ",".join([*parts, f"mbs={draw(st.sampled_from((1, 2)))}", f"recompute={recompute}"]),
    )


def _times(figure: Figure, factor: float) -> Figure:
    return figure.model_copy(update={"value": figure.value * factor})


def _on(situation: Situation, cluster: ClusterSpec) -> Situation:
    return Situation(situation.model, cluster, situation.job, situation.engine, situation.job_request)


def _with_tier(situation: Situation, tier: int, **factors: float) -> Situation:
    tiers = list(situation.cluster.tiers)
    update = {name: _times(getattr(tiers[tier], name), factor) for name, factor in factors.items()}
    tiers[tier] = tiers[tier].model_copy(update=update)
    return _on(situation, situation.cluster.model_copy(update={"tiers": tuple(tiers)}))


def _with_device(situation: Situation, name: str, factor: float) -> Situation:
    (group,) = situation.cluster.groups
    figures = getattr(group.device, name)
    scaled = (
        {key: _times(figure, factor) for key, figure in figures.items()}
        if isinstance(figures, dict)
        else _times(figures, factor)
    )
    device = group.device.model_copy(update={name: scaled})
    changed = group.model_copy(update={"device": device})
    return _on(situation, situation.cluster.model_copy(update={"groups": (changed,)}))


@QUICK
@given(cases())
def test_better_hardware_is_never_slower_nor_fuller(case: Case) -> None:
    of = case.situation()
    plain = case.priced(of)
    for tier in range(len(of.cluster.tiers)):
        assert case.priced(_with_tier(of, tier, bytes_per_s=2.0)).step_s <= plain.step_s * (1 + ULP)
        assert case.priced(_with_tier(of, tier, latency_s=3.0)).step_s >= plain.step_s * (1 - ULP)
    for name in ("peak_flops", "memory_bytes_per_s"):
        assert case.priced(_with_device(of, name, 1.5)).step_s <= plain.step_s * (1 + ULP), name
    larger = case.priced(_with_device(of, "capacity_bytes", 1.3))
    assert larger.oom_probability <= plain.oom_probability
    assert larger.step_s == plain.step_s


@QUICK
@given(cases())
def test_parts_sum_and_twice_the_batch_takes_at_most_twice_as_long(case: Case) -> None:
    once, twice = case.priced(case.situation()), case.priced(case.situation(batch=128))
    assert sum(once.breakdown_s.values()) == pytest.approx(once.step_s, abs=1e-9)
    assert once.step_s_low <= once.step_s <= once.step_s_high
    assert once.step_s < twice.step_s <= 2 * once.step_s * (1 + 1e-4)


@QUICK
@given(cases())
def test_more_recompute_is_never_faster_nor_larger(case: Case) -> None:
    base, of = case.layout.rpartition(",")[0], case.situation()
    found = [case.priced(of, f"{base},recompute={kind}") for kind in ("none", "full:1", "full:2", "full")]
    for less, more in pairwise(found):
        assert more.step_s >= less.step_s * (1 - ULP)
        assert more.memory.peak_allocated_bytes <= less.memory.peak_allocated_bytes * (1 + ULP)


@QUICK
@given(cases(MIXTURES))
def test_uneven_experts_are_never_faster_nor_smaller(case: Case) -> None:
    even, uneven = (case.priced(case.situation(**{"job.moe_imbalance": load})) for load in (1.0, 1.5))
    assert uneven.step_s >= even.step_s * (1 - ULP)
    assert uneven.memory.peak_allocated_bytes >= even.memory.peak_allocated_bytes - 1
