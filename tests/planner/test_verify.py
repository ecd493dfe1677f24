"""Every plan passes the re-check that shares nothing with the search; a prediction that was tampered with does not."""

import random
from dataclasses import replace

import pytest

from cost_models.errors import IllegalStrategy
from cost_models.specs.recompute import Recompute
from cost_models.specs.strategy import parse_strategy
from planner.errors import VerificationFailed
from planner.evaluation import Context, evaluate
from planner.make_plan import make_plan
from planner.request import RunRequest, SearchRequest
from planner.verify import simulated_step_s, verify

MODELS = (
    "llama-3.1-8b",
    "llama-3.2-1b",
    "mixtral-8x7b",
    "gemma-3-1b",
    "nemotron-h-8b",
    "t5-3b",
    "gpt2",
    "bert-large",
)
CLUSTERS = ("dgx-h100", "dgx-a100", "dgx-h200", "dgx-b200")


def random_request(rng: random.Random) -> tuple[str, str, int, dict[str, object]]:
    model = rng.choice(MODELS)
    length = 512 if model in ("gpt2", "bert-large") else rng.choice((2048, 4096, 8192))
    job = {
        "seq_len": length,
        "global_batch": rng.choice((24, 32, 64, 96)),
        "engine": rng.choice(("megatron", "megatron", "torch", "fsdp2", "ddp")),
    }
    return model, rng.choice(CLUSTERS), rng.choice((1, 2, 4, 6, 8, 16, 24)), job


@pytest.mark.parametrize("seed", [0, 2, *(pytest.param(n, marks=pytest.mark.matrix) for n in (1, 3, 4, 5))])
def test_every_plan_verifies(make_situation, seed):
    rng = random.Random(seed)
    verified = 0
    for _ in range(6):
        model, cluster, devices, job = random_request(rng)
        of = make_situation(model, cluster, devices, **job)
        result = make_plan(of, SearchRequest(top_k=4))
        context = Context.of(of)
        for prediction in (result.best, *result.alternatives):
            if prediction is not None:
                verify(context, prediction)
                step_s = simulated_step_s(context, prediction.strategy)
                assert step_s == pytest.approx(prediction.step_s, rel=1e-9)
                verified += 1
    assert verified >= 3


@pytest.mark.parametrize(
    ("objective", "pareto"),
    [
        ("cost_per_token", False),
        ("energy", False),
        ("goodput", False),
        pytest.param("batch", False, marks=pytest.mark.matrix),
        pytest.param("step_time", True, marks=pytest.mark.matrix),
    ],
)
def test_plans_of_every_objective_verify(make_situation, objective, pareto):
    """Under the request that they are for: its devices and batch may be others than those that were asked for."""
    job: dict[str, object] = {"seq_len": 2048, "global_batch": 32}
    of = make_situation("llama-3.2-1b", "dgx-h100", 8, **job)
    run = RunRequest(tokens=1e10, price_per_device_hour_usd=2.0)
    result = make_plan(of, SearchRequest(objective=objective, run=run, pareto=pareto, top_k=3))
    changes = dict(result.changes)
    devices = changes.pop("devices", 8)
    asked = make_situation("llama-3.2-1b", "dgx-h100", devices, **job | changes)
    assert result.best is not None
    for prediction in (result.best, *result.alternatives):
        verify(Context.of(asked), prediction)


@pytest.mark.parametrize("schedule", ["zb-h1", "zb-v", "dualpipe-v", "gpipe"])
def test_plans_of_every_schedule_verify(make_situation, schedule):
    """Walked operation by operation, weight gradients apart, with uneven stages and recompute among them."""
    of = make_situation("llama-3.2-1b", "dgx-h100", 8, seq_len=512, global_batch=64, engine="torch")
    pins = {"schedule": schedule, "pp": 4, "tp": 1}
    result = make_plan(of, SearchRequest(pins=pins, top_k=3))
    assert result.status == "optimal"
    for prediction in (result.best, *result.alternatives):
        assert prediction is not None
        assert prediction.strategy.schedule.value == schedule
        verify(Context.of(of), prediction)
    texts = ("stages=3+5+6+2", "stages=3+5+6+2,recompute=full:1+0+2+0")
    if result.best is not None and result.best.strategy.vpp == 2:
        texts = ("stages=3+1+2+2+3+1+2+2", "stages=3+1+2+2+3+1+2+2,recompute=full")
    for text in texts:
        found = evaluate(of, parse_strategy(f"schedule={schedule},pp=4,{text}"))
        verify(Context.of(of), found)


@pytest.mark.parametrize(
    "text", ["pp=4,stages=0+10+6+0", "pp=4,stages=9+7+0+0", "pp=2,vpp=2,stages=0+9+7+0,recompute=full:2"]
)
def test_the_ends_may_hold_embedding_and_loss_alone(make_situation, text):
    of = make_situation("llama-3.2-1b", "dgx-h100", 8, seq_len=512, global_batch=64)
    if "7+0+0" in text:
        with pytest.raises(
            IllegalStrategy, match="virtual stage 2 of 4 holds no layer, which only the first"
        ):
            evaluate(of, parse_strategy(text))
        return
    found = evaluate(of, parse_strategy(text))
    verify(Context.of(of), found)
    held = [layers for stage in found.memory.stages for layers in stage.layers]
    assert sorted(held) == sorted({*held}), "every layer once"
    assert found.memory.stages[0].layers[0] == "embedding"
    if found.strategy.vpp == 1:  # two of four ranks have next to nothing to do
        assert found.step_s > evaluate(of, parse_strategy("pp=4,stages=4+4+4+4")).step_s


@pytest.fixture(scope="module")
def situation(make_situation):
    return make_situation("llama-3.1-8b", "dgx-h100", 16, seq_len=8192, global_batch=128)


@pytest.fixture(scope="module")
def context(situation):
    return Context.of(situation)


@pytest.fixture(scope="module")
def best(situation):
    return make_plan(situation, SearchRequest(pins={"pp": 4, "vpp": 1})).best


def changed_strategy(prediction, **changes):
    return replace(prediction, strategy=replace(prediction.strategy, **changes))


def test_the_plan_itself_passes(context, best):
    verify(context, best)


@pytest.mark.parametrize("factor", [0.999999, 1.000001, 0.5])
def test_another_step_is_noticed(context, best, factor):
    with pytest.raises(VerificationFailed, match="breakdown's sum"):
        verify(context, replace(best, step_s=best.step_s * factor))


def test_another_step_with_a_breakdown_to_match_is_noticed(context, best):
    breakdown = dict(best.breakdown_s)
    breakdown["other"] -= 0.01 * best.step_s
    with pytest.raises(VerificationFailed, match="simulated step"):
        verify(context, replace(best, step_s=0.99 * best.step_s, breakdown_s=breakdown))


def test_moved_layers_are_noticed(context, best):
    first, second, *rest = best.strategy.stages
    with pytest.raises(VerificationFailed, match="simulated step"):
        verify(context, changed_strategy(best, stages=(first - 3, second + 3, *rest)))


@pytest.mark.parametrize("change", ["lost", "doubled", "empty", "merged"])
def test_layers_lost_or_placed_twice_are_noticed(context, best, change):
    first, second, *rest = best.strategy.stages
    stages = {
        "lost": (first - 1, second, *rest),
        "doubled": (first + 1, second, *rest),
        "empty": (first + second, 0, *rest),
        "merged": (first + second, *rest),
    }[change]
    with pytest.raises(VerificationFailed, match="stages hold every layer once"):
        verify(context, changed_strategy(best, stages=stages))


def test_idle_devices_are_noticed(context, best):
    dp = best.strategy.dp
    with pytest.raises(VerificationFailed, match="devices"):
        verify(context, changed_strategy(best, dp=2 * dp, dp_shard=2 * dp))


def test_lost_sequences_are_noticed(context, best):
    with pytest.raises(VerificationFailed, match="global batch"):
        verify(context, changed_strategy(best, mbs=3))


def test_a_broken_rule_is_noticed(context, best):
    with pytest.raises(VerificationFailed, match="zero"):
        verify(context, changed_strategy(best, zero=3))


def test_other_recompute_is_noticed(context, best):
    full = Recompute((), -1) if best.strategy.recompute != Recompute((), -1) else Recompute()
    with pytest.raises(VerificationFailed, match="simulated step"):
        verify(context, changed_strategy(best, recompute=full))


@pytest.mark.parametrize("cause", ["weights", "activations"])
def test_bytes_that_do_not_add_up_are_noticed(context, best, cause):
    stage = best.memory.stages[1]
    tampered = replace(stage, by_cause=dict(stage.by_cause) | {cause: 0.5 * stage.by_cause[cause]})
    memory = replace(best.memory, stages=(best.memory.stages[0], tampered, *best.memory.stages[2:]))
    with pytest.raises(VerificationFailed, match="stage 1's causes"):
        verify(context, replace(best, memory=memory))


def test_a_peak_below_a_stage_is_noticed(context, best):
    memory = replace(best.memory, peak_allocated_bytes=0.9 * best.memory.peak_allocated_bytes)
    with pytest.raises(VerificationFailed, match="stated peak"):
        verify(context, replace(best, memory=memory))


def test_memory_stated_too_small_throughout_is_noticed(context, best):
    stages = tuple(
        replace(
            stage,
            allocated_bytes=0.5 * stage.allocated_bytes,
            by_cause={cause: 0.5 * size for cause, size in stage.by_cause.items()},
        )
        for stage in best.memory.stages
    )
    memory = replace(best.memory, stages=stages, peak_allocated_bytes=0.5 * best.memory.peak_allocated_bytes)
    with pytest.raises(VerificationFailed, match="stage 0"):
        verify(context, replace(best, memory=memory))


def test_a_plan_that_does_not_fit_is_noticed(make_situation):
    of = make_situation("llama-3.1-70b", "dgx-h100", 8, seq_len=8192, global_batch=64)
    stuffed = evaluate(of, parse_strategy("tp=8,mbs=4"))
    assert stuffed.verdict == "does_not_fit"
    with pytest.raises(VerificationFailed, match="memory"):
        verify(Context.of(of), stuffed)
