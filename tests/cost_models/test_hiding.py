"""What hides behind what, by engine and option: nothing is free, pairs hide exchanges, options move the right cause."""

import numpy as np
import pytest

from cost_models.chunk import StepRules, exposed_sync_s
from cost_models.communication import ExpertGroups, Span, expert_groups, group_interference, network_of
from cost_models.errors import IllegalStrategy
from cost_models.mesh import batch_of, mesh_key
from cost_models.mesh_costs import batch_rules
from cost_models.profiles import load_cluster
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import Context, complete_legal, evaluate

MOE = {"seq_len": 4096, "global_batch": 128}


def predicted(make_situation, text, model="mixtral-8x7b", devices=32, **job):
    return evaluate(make_situation(model, "dgx-h100", devices, **(MOE | job)), parse_strategy(text))


def rules_of(make_situation, text, **job):
    context = Context.of(
        make_situation("llama-3.1-8b", "dgx-h100", 32, seq_len=4096, global_batch=128, **job)
    )
    strategy = complete_legal(context, parse_strategy(text))
    priced = context.pricer.price(batch_of([strategy], mesh_key(strategy)))
    return batch_rules(context.pricer, priced).hiding, priced


def test_interference_is_that_of_the_slowest_tier_in_use():
    network = network_of(load_cluster("dgx-h100:64"))
    inside, outside = network.interference.tolist()
    assert float(group_interference(Span(8), network)) == inside
    assert float(group_interference(Span(8, 8), network)) == outside
    assert float(group_interference(Span(64), network)) == max(inside, outside)
    assert float(group_interference(Span(1), network)) == 0.0


def test_a_hidden_reduction_still_costs_its_interference():
    # c = 0.05, w = 0.7, i = 0.2: hidden = min(0.95 x 10, 0.7 x 8 = 5.6) of 10 s; added = 10 - 5.6 + 0.2 x 5.6 = 5.52
    rules = StepRules(sync_exposed_min=0.05 + 0.2 * 0.95, sync_overlap=0.8 * 0.7)
    assert float(exposed_sync_s(rules, np.array(10.0), np.array(8.0))) == pytest.approx(5.52)
    # a wide window hides 9.5 s: 0.5 + 0.2 x 9.5 = 2.4
    assert float(exposed_sync_s(rules, np.array(10.0), np.array(80.0))) == pytest.approx(2.4)


def test_shares_of_a_mesh_by_hand(make_situation):
    hiding, priced = rules_of(make_situation, "tp=8")
    # 4 data-parallel ranks, one a node: only the outer tier's interference, 0.1
    assert hiding.sync_overlap.tolist() == pytest.approx([0.9 * 0.7])
    assert hiding.sync_exposed_min.tolist() == pytest.approx([0.05 + 0.1 * 0.95])
    counts = np.bincount(priced.rows.layers).astype(float)
    forward = float((counts @ priced.work.forward_parts_s.sum(0))[0])
    gather = float((counts @ priced.states.gather_s)[0])
    hidden = min(0.85, 0.7 * forward / gather)
    assert hiding.gather_exposed.tolist() == pytest.approx([1 - 0.9 * hidden])
    shown, _ = rules_of(make_situation, "tp=8", options={"engine.overlap_param_gather": False})
    assert shown.gather_exposed.tolist() == [1.0]
    alone, _ = rules_of(make_situation, "tp=8,pp=4")  # no data-parallel ranks: nothing to slow down
    assert alone.sync_exposed_min.tolist() == pytest.approx([0.05])


def test_megatron_hides_expert_exchanges_beside_another_micro_batch(make_situation):
    text = "ep=8,pp=2,vpp=2"
    plain = predicted(make_situation, text)
    paired = predicted(make_situation, text, options={"engine.ep_overlap": True})
    before, after = (found.breakdown_s["ep_communication"] for found in (plain, paired))
    # m v = 8 x 2 = 16 chunk passes, of which p - 1 + (v - 1) p + 1 = 4 are in no pair: 12/16 of the exchange can hide,
    # at an interference of 0.2 within a node: at least 1 - 0.75 x 0.8 = 0.4 of it shows.
    assert after == pytest.approx(0.4 * before, rel=1e-6)
    assert paired.step_s < plain.step_s
    with pytest.raises(IllegalStrategy, match="no exchange of experts"):
        predicted(make_situation, "tp=8", options={"engine.ep_overlap": True})
    with pytest.raises(IllegalStrategy, match="full recompute"):
        predicted(make_situation, text + ",recompute=full", options={"engine.ep_overlap": True})


def test_torchtitan_pairs_under_dualpipe_v_since_0_3(make_situation):
    text = "ep=8,pp=4,schedule=dualpipe-v"
    older, newer = (predicted(make_situation, text, engine=f"torchtitan@{v}") for v in ("0.2", "0.3"))
    off = predicted(make_situation, text, engine="torchtitan@0.3", options={"engine.ep_overlap": False})
    assert off.step_s == older.step_s > newer.step_s
    assert 0.2 * older.breakdown_s["ep_communication"] < newer.breakdown_s["ep_communication"]
    assert newer.breakdown_s["compute"] == pytest.approx(older.breakdown_s["compute"], rel=1e-9)
    # Another schedule has no pairs, whatever the option says.
    same = [predicted(make_situation, "ep=8,pp=4", engine=f"torchtitan@{v}").step_s for v in ("0.2", "0.3")]
    assert same[0] == same[1]


@pytest.mark.parametrize(
    ("engine", "text", "option", "cause"),
    [
        ("megatron", "tp=8", "engine.tp_comm_overlap", "tp_communication"),
        ("megatron", "pp=4,vpp=2", "engine.overlap_p2p", "pp_communication"),
        ("megatron", "mbs=1", "engine.overlap_grad_reduce", "dp_communication"),
        ("megatron", "mbs=1", "engine.overlap_param_gather", "dp_communication"),
        ("fsdp2", "mbs=1", "engine.overlap", "dp_communication"),
        ("torch", "zero=0", "engine.overlap", "dp_communication"),
    ],
)
def test_every_overlap_lowers_its_cause_and_not_to_nothing(make_situation, engine, text, option, cause):
    job = {"engine": engine, "seq_len": 8192, "global_batch": 64}
    # an eighth of a layer of the small model takes the device less than the host needs to launch it
    model = "llama-3.1-70b" if text == "tp=8" else "llama-3.1-8b"
    on, off = (
        predicted(make_situation, text, model, options={option: value}, **job) for value in (True, False)
    )
    assert 0.0 < on.breakdown_s[cause] < off.breakdown_s[cause]
    assert on.step_s < off.step_s


def test_a_router_that_keeps_groups_reaches_fewer_nodes(make_situation):
    def kinds(model):
        of = make_situation(model, "dgx-h800", 64, seq_len=4096, global_batch=256)
        return expert_groups(op for kind in of.model.kinds.values() for op in kind.operators)

    assert kinds("deepseek-v3") == ExpertGroups(8, 4)
    assert kinds("mixtral-8x7b") is None and kinds("llama-3.1-8b") is None


def test_the_hottest_rank_takes_its_load_and_a_capacity_caps_it(make_situation):
    def exchanged(**options):
        chosen = {f"job.{key}": value for key, value in options.items()}
        found = predicted(make_situation, "ep=8", options=chosen)
        return found.breakdown_s["ep_communication"], found.breakdown_s["compute"]

    even, warm, hot = exchanged(), exchanged(moe_imbalance=1.25), exchanged(moe_imbalance=1.5)
    # messages grow with the load, what an exchange takes beside them does not
    assert hot[0] - even[0] == pytest.approx(2 * (warm[0] - even[0]), rel=1e-6)
    assert even[0] < warm[0] and even[1] < warm[1] < hot[1]
    # with a capacity every rank takes so many times the even share, whatever the router would have sent it
    assert exchanged(moe_imbalance=1.5, moe_capacity_factor=1.0) == pytest.approx(even)
    assert exchanged(moe_imbalance=1.5, moe_capacity_factor=1.25)[0] == pytest.approx(warm[0])


def test_backward_prefetch_of_fsdp1(make_situation):
    steps = [
        predicted(
            make_situation,
            "mbs=1",
            "llama-3.1-8b",
            engine="fsdp1",
            options={"engine.backward_prefetch": value},
        ).step_s
        for value in ("backward_pre", "backward_post", "none")
    ]
    assert steps == sorted(steps) and steps[0] < steps[2]
