"""Options of Megatron-LM that change kernels and messages: older attention, scattered boundary sends."""

import pytest

from cost_models.errors import IllegalStrategy
from cost_models.roofline import load_efficiency
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import evaluate


def test_older_attention_is_slower_where_the_curves_say_so(make_situation):
    assert load_efficiency("hopper").scale.flash2 < 1

    def step_s(attention: str) -> float:
        options = {"engine.attention": attention}
        of = make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=8192, global_batch=64, options=options)
        return evaluate(of, parse_strategy("tp=2,recompute=full")).step_s

    assert step_s("flash2") > 1.05 * step_s("flash")


def test_a_scattered_boundary_sends_less_between_stages(make_situation):
    def sends_s(scatter: bool, sp: str) -> float:
        options = {"engine.scatter_gather_p2p": scatter}
        of = make_situation("gpt3-175b", "dgx-a100", 64, seq_len=2048, global_batch=64, options=options)
        strategy = parse_strategy(f"tp=8,pp=8,recompute=full,sp={sp}")
        return evaluate(of, strategy).breakdown_s["pp_communication"]

    # an eighth travels between nodes; gathering it inside the node costs less than what it saves
    assert sends_s(True, "false") < 0.5 * sends_s(False, "false")
    assert sends_s(True, "true") == sends_s(False, "true")


def test_instances_of_the_distributed_optimizer_keep_a_shard_each(make_situation):
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=4096, global_batch=16)

    def optimizer_bytes(layout: str) -> float:
        return evaluate(of, parse_strategy(layout)).memory.stages[0].by_cause["optimizer"]

    whole = optimizer_bytes("tp=1,dp=8,recompute=full")
    # two instances shard over four ranks instead of eight
    assert optimizer_bytes("tp=1,dp=8,dp_replicate=2,recompute=full") == pytest.approx(2 * whole)


def test_instances_need_the_distributed_optimizer(make_situation):
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=4096, global_batch=16)
    with pytest.raises(IllegalStrategy, match="needs the distributed optimizer"):
        evaluate(of, parse_strategy("tp=1,dp=8,dp_replicate=2,zero=0,recompute=full"))
