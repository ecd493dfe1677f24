"""Offload: what leaves the device, where it is counted, and what moving it costs."""

import pytest

from cost_models.errors import IllegalStrategy
from cost_models.host import host_rates
from cost_models.operators.base import ParameterGroup
from cost_models.specs.offload import Offload, parse_offload
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import evaluate
from planner.situation import situate


def situation(make_situation, **job):
    return make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=4096, global_batch=8, engine="torch", **job)


@pytest.mark.parametrize(
    ("text", "offload", "canonical"),
    [
        ("none", Offload(), "none"),
        ("optimizer", Offload(1.0), "optimizer"),
        ("optimizer:1.0", Offload(1.0), "optimizer"),
        ("optimizer:0.5", Offload(0.5), "optimizer:0.5"),
        ("parameters", Offload(1.0, parameters=True), "parameters"),
    ],
)
def test_forms(text, offload, canonical):
    assert parse_offload(text) == offload
    assert parse_offload(text).text() == canonical


@pytest.mark.parametrize(
    "text", ["optimizer:0", "optimizer:1.5", "optimizer:", "weights", "none:1", "optimizer:1e9"]
)
def test_other_forms_are_refused_with_the_legal_ones(text):
    with pytest.raises(IllegalStrategy, match="offload=optimizer"):
        parse_offload(text)


@pytest.mark.parametrize(
    ("strategy", "device", "host"),
    [
        # D = 8 ranks share the states: bf16 weights 2, fp32 gradients 4, master and moments 12 / 8
        ("zero=1", 2 + 4 + 12 / 8, 0.0),
        ("zero=1,offload=optimizer", 2 + 4, 16 / 8),
        ("zero=1,offload=optimizer:0.25", 2 + 4 + 0.75 * 12 / 8, 0.25 * 16 / 8),
        # sharded: fp32 weights 4 / 8, gradients 4 / 8; the host has copies of both beside the moments
        ("zero=3,offload=optimizer", 8 / 8, 16 / 8),
        ("zero=3,offload=parameters", 0.0, 16 / 8),
    ],
)
def test_bytes_of_a_parameter(make_situation, make_mesh, strategy, device, host):
    of = situation(make_situation)
    state = of.engine.state_bytes(ParameterGroup("w", 1), make_mesh(of, strategy), of.job)
    assert float((state.weights + state.gradients + state.optimizer)[0]) == pytest.approx(device)
    assert float((state.host + 0.0 * state.weights)[0]) == pytest.approx(host)


def test_the_answer_counts_host_bytes_and_the_time_they_cost(make_situation):
    """8.03e9 parameters x 16 / 8 B on the host of each, 12 / 8 of them taken from the device."""
    of = situation(make_situation)
    without = evaluate(of, parse_strategy("zero=1,recompute=full"))
    moved = evaluate(of, parse_strategy("zero=1,recompute=full,offload=optimizer"))
    parameters = without.parameters
    assert without.memory.host_bytes == 0.0
    assert moved.memory.host_bytes == pytest.approx(16 / 8 * parameters, rel=1e-6)
    freed = (
        without.memory.stages[0].by_phase["initialisation"]
        - moved.memory.stages[0].by_phase["initialisation"]
    )
    assert freed == pytest.approx(12 / 8 * parameters, rel=1e-6)
    rates = host_rates(of.cluster)
    host_s = parameters / 8 * ((2 * 12 + 4) / rates.step_bytes_per_s + (4 + 2) / rates.link_bytes_per_s)
    assert moved.breakdown_s["optimizer"] == pytest.approx(host_s, rel=0.02)


def test_offloaded_parameters_pass_the_link_for_every_micro_batch(make_situation):
    """Each rank's 4 / 8 B a parameter go up for forward and backward, and 4 / 8 B of gradient come down."""
    of = situation(make_situation, options={"engine.overlap": False})
    resident = evaluate(of, parse_strategy("zero=3"))
    offloaded = evaluate(of, parse_strategy("zero=3,offload=parameters"))
    link_s = resident.parameters * 12 / 8 / host_rates(of.cluster).link_bytes_per_s
    more = offloaded.breakdown_s["dp_communication"] - resident.breakdown_s["dp_communication"]
    assert more == pytest.approx(link_s, rel=1e-6)


def test_too_little_host_memory_does_not_fit(make_situation):
    """70.6e9 x 16 B over 8 cards are 131 GiB each, of 512 GiB a node."""
    of = make_situation("llama-3.1-70b", "rtx-4090", 8, seq_len=1024, global_batch=8, engine="fsdp2")
    found = evaluate(of, parse_strategy("zero=3,offload=parameters,recompute=full"))
    assert found.verdict == "does_not_fit"
    assert any("host memory" in warning for warning in found.warnings)


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_megatron_offloads_a_share_of_its_optimizer(make_situation, make_mesh, share):
    """12 B of master weights and moments, and 4 B of gradient on its way, over 8 ranks; weights 2 B and gradients 4 B
    stay."""
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=4096, global_batch=8)
    mesh = make_mesh(of, f"offload=optimizer:{share}" if share < 1 else "offload=optimizer")
    state = of.engine.state_bytes(ParameterGroup("w", 1), mesh, of.job)
    assert float(state.host[0]) == pytest.approx(share * 16 / 8)
    assert float((state.weights + state.gradients + state.optimizer)[0]) == pytest.approx(
        6 + (1 - share) * 12 / 8
    )


@pytest.mark.parametrize(
    ("engine", "strategy", "rule"),
    [
        ("megatron", "offload=parameters", "offload"),
        ("ddp", "offload=parameters", "offload"),
        ("torch", "zero=1,offload=parameters", "offload_zero"),
    ],
)
def test_illegal_offload_is_named(make_situation, engine, strategy, rule):
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=4096, global_batch=8, engine=engine)
    with pytest.raises(IllegalStrategy) as refused:
        evaluate(of, parse_strategy(strategy))
    assert rule in {violation.rule for violation in refused.value.violations}


def test_devices_that_share_a_link_to_the_host_divide_its_rate(make_situation):
    of = situation(make_situation)
    group = of.cluster.groups[0].model_copy(update={"devices_per_host_link": 2})
    shared = situate(of.model, of.cluster.model_copy(update={"groups": (group,)}), of.job_request)
    alone_rates, rates = host_rates(of.cluster), host_rates(shared.cluster)
    assert rates.link_bytes_per_s == alone_rates.link_bytes_per_s / 2
    assert (
        rates.step_bytes_per_s == alone_rates.step_bytes_per_s
    )  # the host's own part is shared by the node as before
    strategy = parse_strategy("zero=3,offload=parameters")
    assert evaluate(shared, strategy).step_s > evaluate(of, strategy).step_s
    plain = parse_strategy("zero=3")
    assert evaluate(shared, plain).step_s == evaluate(of, plain).step_s


def test_one_device_in_use_has_a_shared_link_for_itself(make_situation):
    of = make_situation("pythia-70m", "dgx-h100", 1, seq_len=2048, global_batch=8, engine="torch")
    group = of.cluster.groups[0].model_copy(update={"devices_per_host_link": 2})
    assert host_rates(of.cluster.model_copy(update={"groups": (group,)})) == host_rates(of.cluster)
