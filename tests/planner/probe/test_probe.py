"""A probe keeps what one device of the plan's fullest stage holds, and a measurement of it is carried back."""

import pytest

from cost_models.errors import BadInput
from cost_models.specs.counts import count_parameters
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import evaluate
from planner.plan_file import parse_plan, plan_document
from planner.probe import carry, derive_probe, probe_json, probe_result
from planner.probe.shrink import shrunk
from planner.request import SearchRequest
from planner.situation import resolve_cluster, resolve_model, situate


@pytest.fixture(scope="module")
def dense(make_situation):
    of = make_situation("llama-3.1-8b", "dgx-h100", 64, seq_len=8192, global_batch=256)
    return of, evaluate(of, parse_strategy("tp=2,pp=4,cp=2,recompute=selective"))


def test_shards_and_layer_time_are_the_plans(dense):
    of, plan = dense
    probe = derive_probe(of, plan, 8)
    ours, theirs = plan.strategy, probe.prediction.strategy
    assert theirs.world_size == probe.situation.cluster.num_devices <= 8
    assert (theirs.tp, theirs.cp, theirs.mbs, theirs.sp) == (ours.tp, ours.cp, ours.mbs, ours.sp)
    assert probe.situation.job.seq_len == of.job.seq_len
    assert theirs.recompute == ours.recompute
    assert probe.probe_layer_s == pytest.approx(probe.plan_layer_s, rel=0.02)
    assert probe.prediction.fits


def test_gpipe_on_one_rank_keeps_the_micro_batches_in_flight(make_situation):
    # Rank 0 of four keeps four micro-batches in 1F1B; GPipe of four keeps four, of as many blocks.
    of = make_situation("llama-3.1-8b", "dgx-h100", 16, seq_len=4096, global_batch=64, engine="torch")
    plan = evaluate(of, parse_strategy("tp=2,pp=4,zero=1,recompute=selective"))
    probe = derive_probe(of, plan, 4)
    theirs = probe.prediction.strategy
    assert (theirs.schedule.value, theirs.num_micro_batches(probe.situation.job.global_batch)) == ("gpipe", 4)
    planned, shown = (stage.by_cause["activations"] for stage in (probe.planned, probe.shown))
    assert shown == pytest.approx(planned, rel=0.15)


def test_fewer_expert_ranks_keep_their_experts(make_situation):
    # 256 experts over ep 32 are 8 a rank; on at most 8 ranks 64 experts over ep 8 are 8 a rank too.
    of = make_situation("deepseek-v3", "dgx-h100", 256, seq_len=4096, global_batch=512)
    plan = evaluate(of, parse_strategy("pp=8,ep=32,recompute=full"))
    probe = derive_probe(of, plan, 8)
    assert probe.situation.model.num_experts // probe.prediction.strategy.ep == 8
    assert probe.situation.model.num_experts >= of.model.num_experts_per_token


def test_a_part_of_a_model_counts_its_own_parameters(dense):
    # Llama-3.1-8B: 218,112,000 parameters a block, 525,336,576 in each table and 4,096 in the last norm.
    of, _ = dense
    assert (
        count_parameters(shrunk(of.model, [0, 5, 31], 0)).parameters
        == 3 * 218_112_000 + 2 * 525_336_576 + 4096
    )


def test_the_plan_file_of_a_probe_holds_what_it_predicts(dense):
    of, plan = dense
    probe = derive_probe(of, plan, 8)
    file = parse_plan(plan_document(probe.situation, SearchRequest(), probe_result(probe)))
    again = situate(
        resolve_model(file.request.model), resolve_cluster(file.request.cluster), file.request.job
    )
    text = ",".join(
        f"{k}={str(v).lower() if isinstance(v, bool) else v}" for k, v in file.best_strategy().items()
    )
    assert evaluate(again, parse_strategy(text)).step_s == pytest.approx(probe.prediction.step_s)


def test_a_measurement_is_carried_back(dense):
    of, plan = dense
    probe = derive_probe(of, plan, 8)
    small = probe.prediction
    more = {"step_s": 1.5 * small.step_s, "peak_bytes": small.memory.peak_allocated_bytes + 1e9}
    carried = carry(probe, {"measured": more})
    assert carried.plan_bytes == pytest.approx(plan.memory.peak_allocated_bytes + 1e9)
    assert carried.plan_s == pytest.approx(1.5 * plan.step_s)
    assert probe_json(probe, carried)["carried"]["measured_step_s"] == more["step_s"]
    with pytest.raises(BadInput, match="peak_bytes"):
        carry(probe, {"measured": {"step_s": 1.0, "peak_bytes": None}})


def test_too_few_devices_for_one_stage_are_refused(make_situation):
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=4096, global_batch=64)
    with pytest.raises(BadInput, match="give --devices 8"):
        derive_probe(of, evaluate(of, parse_strategy("tp=8")), 4)


def test_a_fullest_stage_without_layers_is_refused_with_a_way_out(make_situation):
    of = make_situation("gemma-2-2b", "dgx-h100", 4, seq_len=8192, global_batch=16)
    plan = evaluate(of, parse_strategy("pp=4,stages=6+10+10+0,recompute=full"))
    assert plan.memory.worst_stage == 3
    with pytest.raises(BadInput, match="fullest stage, 3, holds the head without a layer"):
        derive_probe(of, plan, 4)
