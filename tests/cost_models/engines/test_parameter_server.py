"""The parameter server: one link carries everything, one rank keeps everything."""

import pytest

from cost_models.errors import IllegalStrategy
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import evaluate
from planner.make_plan import make_plan
from planner.request import SearchRequest


def predicted(make_situation, engine, devices, strategy="mbs=1"):
    of = make_situation("gpt2", "dgx-a100", devices, seq_len=1024, global_batch=64, engine=engine)
    return evaluate(of, parse_strategy(strategy))


def test_the_servers_link_is_the_hot_spot(make_situation):
    """A ring moves 2 (n - 1) / n of the bytes over every link, the server those of all others both ways over one."""
    for devices in (2, 8, 16):
        ring = predicted(make_situation, "ddp", devices).breakdown_s["dp_communication"]
        server = predicted(make_situation, "parameter_server", devices).breakdown_s["dp_communication"]
        assert server > ring
    few, many = (predicted(make_situation, "parameter_server", n) for n in (32, 64))
    shown = [found.breakdown_s["dp_communication"] for found in (few, many)]
    assert shown[1] / shown[0] == pytest.approx((64 - 8) / (32 - 8), rel=0.05)  # ranks of other nodes


def test_servers_share_the_load(make_situation):
    """Each carries and keeps its share; there are at most as many as ranks."""

    def served(servers):
        of = make_situation(
            "gpt2",
            "dgx-a100",
            32,
            seq_len=1024,
            global_batch=64,
            engine="parameter_server",
            options={"engine.servers": servers},
        )
        return evaluate(of, parse_strategy("mbs=1"))

    one, four, all_of_them = (served(n) for n in (1, 4, 32))
    shown = [found.breakdown_s["dp_communication"] for found in (one, four, all_of_them)]
    assert shown[0] / shown[1] == pytest.approx(4.0, rel=0.05)
    assert shown[0] / shown[2] == pytest.approx(32.0, rel=0.05)
    kept = [found.memory.stages[0].by_phase["initialisation"] for found in (one, four)]
    assert kept[0] - kept[1] == pytest.approx(0.75 * 8 * one.parameters, rel=0.01)
    with pytest.raises(IllegalStrategy, match="of 32 ranks"):
        served(64)


def test_the_server_keeps_what_ddp_keeps_everywhere(make_situation):
    """fp32 parameters, compute copies, gradients and moments: 18 bytes a parameter."""
    server = predicted(make_situation, "parameter_server", 8).memory.stages[0].by_phase
    ring = predicted(make_situation, "ddp", 8).memory.stages[0].by_phase
    assert server["initialisation"] == ring["initialisation"]


@pytest.mark.parametrize("strategy", ["tp=2", "pp=2", "zero=1", "cp=2"])
def test_only_data_parallel(make_situation, strategy):
    with pytest.raises(IllegalStrategy) as refused:
        predicted(make_situation, "parameter_server", 8, strategy)
    assert any("parameter_server" in violation.rule for violation in refused.value.violations)


def test_it_can_be_planned_with(make_situation):
    """The space is the micro-batch and the recompute."""
    of = make_situation("gpt2", "dgx-a100", 8, seq_len=1024, global_batch=64, engine="parameter_server")
    plan = make_plan(of, SearchRequest())
    assert plan.status == "optimal"
    assert plan.best is not None
    assert plan.best.strategy.dp == 8
