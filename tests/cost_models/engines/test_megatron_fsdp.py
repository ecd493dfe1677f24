"""Megatron-FSDP: states by stage, units that run ahead, gradients that wait, and the runs that were measured."""

import numpy as np
import pytest

from cost_models.engines import RowInstants
from cost_models.errors import IllegalStrategy
from cost_models.operators.base import ParameterGroup
from cost_models.specs.strategy import parse_strategy
from cost_models.units import MIB
from planner.evaluation import evaluate
from planner.formats.megatron import read_megatron
from planner.request import PresetCluster
from planner.situation import resolve_cluster, situate

WEIGHT = ParameterGroup("w", 1)
RUN = {
    "num-layers": "12",
    "hidden-size": "512",
    "num-attention-heads": "8",
    "micro-batch-size": "4",
    "global-batch-size": "32",
    "seq-length": "1024",
    "max-position-embeddings": "1024",
    "tensor-model-parallel-size": "2",
    "use-megatron-fsdp": "true",
    "data-parallel-sharding-strategy": "optim_grads_params",
    "use-distributed-optimizer": "true",
    "deterministic-mode": "true",
    "no-gradient-accumulation-fusion": "true",
    "bf16": "true",
}


def situation(make_situation, devices=16, **options):
    job = {"engine": "megatron", "options": {"engine.megatron_fsdp": True, **options}}
    return make_situation("llama-3.1-8b", "dgx-h100", devices, seq_len=1024, global_batch=128, **job)


@pytest.mark.parametrize(
    ("strategy", "total"),
    [("zero=0", 18), ("zero=1", 6 + 12 / 16), ("zero=2", 2 + 16 / 16), ("", 18 / 16), ("tp=2", 18 / 8)],
)
def test_states_by_stage(make_situation, make_mesh, strategy, total):
    of = situation(make_situation)
    state = of.engine.state_bytes(WEIGHT, make_mesh(of, strategy), of.job)
    assert float(np.sum(state.weights + state.gradients + state.optimizer)) == pytest.approx(total)


def test_stage_3_gathers_twice_and_reduces_once_a_micro_batch(make_situation, make_mesh):
    of = situation(make_situation)
    plan = of.engine.sync_plan(WEIGHT, make_mesh(of, ""), of.job)
    assert [float(plan.forward_gather[0]), float(plan.backward_gather[0])] == [2.0, 2.0]
    assert float(plan.micro_reduce[0]) == 4.0
    assert float(np.sum(plan.all_gather)) == float(np.sum(plan.reduce_scatter)) == 0.0


def instants(of, mesh, block, count):
    """Rows of an embedding and a head of 2e8 elements each and `count` blocks of so many."""
    elements = np.array([[2e8], [block], [2e8], [2e8]])
    plan = of.engine.sync_plan(WEIGHT, mesh, of.job)
    gathered = elements * (plan.forward_gather + plan.micro_reduce)
    layers = (0, *([1] * count), 3)
    return of.engine.instants(
        RowInstants(elements, gathered, np.zeros_like(elements), layers, elements), mesh
    )


def test_units_run_ahead_by_half_a_communication_unit(make_situation, make_mesh):
    """Root 2 x 2e8 x 2 B; of ten blocks of 2e8 the running one and 5e8 more: 0.8 + 1.4 GB."""
    of = situation(make_situation)
    found = instants(of, make_mesh(of, ""), 2e8, 10)
    assert found.gathered[1, 0] == pytest.approx((4e8 + 7e8) * 2)
    # At most 1e9 gradients of four bytes wait; a block's own are 2e8.
    assert np.broadcast_to(found.waiting, (4, 1))[1, 0] == pytest.approx(1e9 * 4)
    assert found.own[1, 0] == pytest.approx(2e8 * 4)


def test_a_small_model_is_gathered_and_waits_whole(make_situation, make_mesh):
    of = situation(make_situation)
    found = instants(of, make_mesh(of, ""), 1e6, 10)
    assert found.gathered[1, 0] == pytest.approx((4e8 + 1e7) * 2)
    assert np.broadcast_to(found.waiting, (4, 1))[1, 0] == pytest.approx((4e8 + 1e7) * 4)


def test_double_buffers_hold_two_units(make_situation, make_mesh):
    of = situation(make_situation, **{"engine.fsdp_double_buffer": True, "engine.grad_dtype": "bf16"})
    found = instants(of, make_mesh(of, ""), 2e8, 10)
    assert found.gathered[1, 0] == pytest.approx((4e8 + 4e8) * 2)
    assert np.broadcast_to(found.waiting, (4, 1))[1, 0] == pytest.approx(4e8 * 2)


def test_stage_2_needs_the_option(make_situation):
    plain = make_situation("llama-3.1-8b", "dgx-h100", 16, seq_len=1024, global_batch=128, engine="megatron")
    with pytest.raises(IllegalStrategy, match="needs Megatron-FSDP"):
        evaluate(plain, parse_strategy("zero=2"))


@pytest.mark.parametrize(("devices", "mib"), [(8, 1402), (4, 1566)])
def test_a_test_run_of_megatron_core(devices, mib):
    """gpt3_mcore_te_tp2_zp_z3_resume_fsdp_dtensor (profiles/published/megatron_ci.json) on 8 H100, and on 4 GB200."""
    settings = read_megatron(RUN, devices)
    found = evaluate(
        situate(
            settings.model, resolve_cluster(PresetCluster(name="dgx-h100", devices=devices)), settings.job
        ),
        settings.strategy,
    )
    assert found.memory.peak_allocated_bytes / MIB == pytest.approx(mib, rel=0.04)
