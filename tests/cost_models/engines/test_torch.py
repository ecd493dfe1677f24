"""Engine torch: sharded states under a pipeline, replicas, and which schedules it takes with which numbers."""

import pytest

from cost_models.errors import IllegalStrategy
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import evaluate


@pytest.fixture(scope="module")
def situation(make_situation):
    options = {"engine.overlap": False}
    job = {"seq_len": 2048, "global_batch": 32, "engine": "torch", "options": options}
    return make_situation("llama-3.2-1b", "dgx-h100", 8, **job)


def communication(of, strategy):
    return evaluate(of, parse_strategy(strategy)).breakdown_s["dp_communication"]


def test_sharded_stages_gather_for_every_micro_batch(situation):
    """Half the micro-batches move half the bytes: what is left of the difference is latency."""
    many, few = (communication(situation, f"pp=2,zero=3,mbs={mbs}") for mbs in (1, 2))
    assert many / few == pytest.approx(2.0, rel=0.05)


def test_resharding_gathers_once_more_a_micro_batch(situation):
    """Forward gather, backward gather and reduction of bf16, bf16 and fp32: 8 bytes under ZeRO-3, 6 under ZeRO-2."""
    twice, once = (communication(situation, f"pp=2,zero={zero}") for zero in (3, 2))
    assert twice / once == pytest.approx(8 / 6, rel=0.1)


def test_a_stage_holds_only_its_own_shards(situation):
    """States of 16 bytes a parameter over the ranks of a stage: the same bytes a rank whether pp or dp divides."""
    whole = evaluate(situation, parse_strategy("pp=1,zero=3")).memory.stages
    halves = evaluate(situation, parse_strategy("pp=2,zero=3")).memory.stages
    kept = [sum(s.by_cause[c] for c in ("weights", "gradients", "optimizer")) for s in (*whole, *halves)]
    tied = 16 * 128_256 * 2_048 / 4  # the table stands on both stages
    assert (kept[1] + kept[2]) / 2 - kept[0] == pytest.approx(tied / 2, rel=0.02)


def test_replicas_divide_the_shards_and_sum_them_once_a_step(situation):
    """HSDP with two replicas keeps twice the bytes; its reduction does not grow with the micro-batches."""
    one, two = (evaluate(situation, parse_strategy(f"zero=3,dp_replicate={n}")).memory for n in (1, 2))
    kept = [m.stages[0].by_cause["optimizer"] for m in (one, two)]
    assert kept[1] == pytest.approx(2 * kept[0], rel=1e-9)


LEGAL = ["gpipe", "1f1b", "zb-h1", "zb-v", "dualpipe-v"]


@pytest.mark.parametrize("schedule", LEGAL)
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_every_schedule_goes_with_every_zero_stage(situation, schedule, zero):
    found = evaluate(situation, parse_strategy(f"pp=4,schedule={schedule},zero={zero},recompute=full"))
    assert found.step_s > 0.0
    assert found.strategy.vpp == (2 if schedule in ("zb-v", "dualpipe-v") else 1)


@pytest.mark.parametrize(
    ("strategy", "nearest"),
    [
        (
            "pp=4,vpp=2,mbs=8,dp=2",
            "global batch 64",
        ),  # interleaved: 2 micro-batches, groups of pp = 4: 4 x 8 x 2
        (
            "pp=4,schedule=dualpipe-v,mbs=4",
            "global batch 64",
        ),  # 4 micro-batches, 2 x pp = 8 needed: 8 x 4 x 2
        ("pp=4,schedule=zb-v,vpp=1", "vpp 2"),
        ("pp=4,schedule=zb-h1,vpp=2", "vpp 1"),
        ("pp=1,schedule=zb-h1", "pp 2"),
    ],
)
def test_schedules_name_their_nearest_numbers(situation, strategy, nearest):
    with pytest.raises(IllegalStrategy) as refused:
        evaluate(situation, parse_strategy(strategy))
    schedule = next(v for v in refused.value.violations if v.rule == "schedule")
    assert nearest in schedule.nearest


def test_a_split_backward_fills_the_bubble_and_holds_more(situation):
    """zb-h1 against 1f1b on the same stages: less waiting, as many micro-batches on every rank as on the first."""
    plain, split = (
        evaluate(situation, parse_strategy(f"pp=4,schedule={name}")) for name in ("1f1b", "zb-h1")
    )
    assert split.step_s < plain.step_s
    assert split.breakdown_s["compute"] == pytest.approx(plain.breakdown_s["compute"], rel=1e-9)
    last = [found.memory.stages[3].by_cause["activations"] for found in (plain, split)]
    assert last[1] > 1.5 * last[0]
