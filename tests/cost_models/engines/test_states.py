"""Bytes per parameter under every engine, against arithmetic and against what users saw."""

import pytest

from cost_models.engines import local_elements
from cost_models.operators import GroupedLinear, Router
from cost_models.operators.base import ParameterGroup, Shard
from cost_models.specs.counts import count_parameters
from cost_models.specs.strategy import parse_strategy
from cost_models.units import GIB
from planner.evaluation import evaluate


def test_megatron_distributed_optimizer_is_6_plus_12_over_d_by_group(make_situation, make_mesh):
    """Dense states divide by dp x cp, expert states by the expert group (design, section 4)."""
    of = make_situation("mixtral-8x7b", "dgx-h100", 64, seq_len=4096, global_batch=256)
    mesh = make_mesh(of, "tp=2,cp=2,pp=2,ep=4")  # dp = 64 / 8 = 8; expert dp = 2 x 2 x 8 / 4 = 8
    dense = of.engine.state_bytes(ParameterGroup("w", 1), mesh, of.job)
    expert = of.engine.state_bytes(next(_expert_groups(of)), mesh, of.job)
    for state, ways in ((dense, 8 * 2), (expert, 8)):
        total = state.weights + state.gradients + state.optimizer
        assert float(total[0]) == pytest.approx(6 + 12 / ways, rel=1e-12)


def test_megatron_without_distributed_optimizer_is_18(make_situation, make_mesh):
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=4096, global_batch=64)
    state = of.engine.state_bytes(ParameterGroup("w", 1), make_mesh(of, "tp=2,zero=0"), of.job)
    assert float((state.weights + state.gradients + state.optimizer)[0]) == 18.0


@pytest.mark.parametrize(
    ("options", "expected"),
    [({"engine.grad_dtype": "bf16"}, 4 + 12 / 8), ({"engine.moment_dtype": "bf16"}, 6 + 8 / 8)],
)
def test_megatron_dtypes_change_what_they_name(make_situation, make_mesh, options, expected):
    """bf16 gradients save 2 bytes, bf16 moments 4 of the sharded 12."""
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=4096, global_batch=64, options=options)
    state = of.engine.state_bytes(ParameterGroup("w", 1), make_mesh(of, "tp=1"), of.job)
    assert float((state.weights + state.gradients + state.optimizer)[0]) == pytest.approx(expected)


def test_second_copy_of_local_expert_weights_is_26_44_gib(make_situation, make_mesh):
    """16 experts x 3 x 4096 x 1536 x 47 layers x 2 B (a user's failed request with tp 4, pp 2, ep 8 on 32 devices)."""
    of = make_situation("qwen3-235b-a22b", "dgx-a100", 32, seq_len=1024, global_batch=16)
    mesh = make_mesh(of, "tp=4,pp=2,ep=8")
    style = of.engine.style(of.job, "ring")
    per_layer = sum(float(local_elements(g, mesh, style)[0]) for g in _expert_groups(of))
    assert per_layer * 47 * 2 / GIB == pytest.approx(26.44, abs=0.005)


def test_flat_all_reduce_copies_the_gradients_once(make_situation, make_mesh):
    """1.23e9 local fp16 gradients in one flat copy: 2.29 GiB, a user's failed request (2.46B parameters, tp 2)."""
    copied = []  # without the flat copy: fp32 copies of the gradients alone
    for flat in (False, True):
        options = {"engine.grad_dtype": "bf16", "engine.flat_all_reduce": flat}
        job = {"seq_len": 1024, "global_batch": 64, "precision": "fp16", "options": options}
        of = make_situation("gpt2", "dgx-2", 16, **job)
        state = of.engine.state_bytes(ParameterGroup("w", 1), make_mesh(of, "tp=2,zero=0"), of.job)
        copied.append(float(state.step_transient[0]) * 1.23e9 / GIB)
    moments = (
        8 * 1.23e9 / GIB
    )  # fp16 skips steps before they exist, so they find no room among activations' blocks
    assert copied[1] == pytest.approx(2.29 + moments, abs=0.005)
    without = evaluate(of, parse_strategy("tp=2,zero=0")).memory.stages[0]
    assert without.by_phase["optimizer_step"] > without.by_phase["initialisation"]


def test_router_loss_of_all_layers_is_48_gib(make_situation):
    """48 layers x 131,072 tokens x 8 of 128 experts x 8 B = 48.0 GiB in one tensor at the loss (a user's 30B MoE)."""
    peaks = {}
    for on in (False, True):
        job = {
            "engine": "fsdp2",
            "options": {"engine.router_aux_loss": on, "engine.cross_entropy_chunks": 1024},
        }
        of = make_situation("qwen3-30b-a3b", "dgx-h100", 64, seq_len=131_072, global_batch=64, **job)
        found = evaluate(of, parse_strategy("recompute=full"))
        peaks[on] = found.memory.peak_allocated_bytes
    assert found.memory.peak_phase == "loss"
    assert 0 < (peaks[True] - peaks[False]) / GIB <= 48.0
    style = of.engine.style(of.job, "ring")
    router = next(op for op in of.model.kinds["moe"].operators if isinstance(op, Router))
    assert 48 * float(router.loss_bytes(Shard(1.0, 131_072.0, 131_072.0), style)) / GIB == 48.0


def test_pure_bf16_adam_is_8_bytes_and_8_bit_adam_6(make_situation, make_mesh):
    """7B in pure bf16 on one card: 8 x 6.74e9 = 53.9 GB and 6 x 6.74e9 = 40.4 GB, as a user measured.

    Each of the two moments has an fp32 scale for 256 elements: 2 x 4 / 256 B more.
    """
    for optimizer, expected in (("adamw", 8.0), ("adam8bit", 6.0 + 2 * 4 / 256)):
        options = {"engine.param_dtype": "bf16"}
        job = {"engine": "ddp", "optimizer": optimizer, "options": options}
        of = make_situation("llama-3.1-8b", "dgx-a100", 1, seq_len=1024, global_batch=1, **job)
        state = of.engine.state_bytes(ParameterGroup("w", 1), make_mesh(of, ""), of.job)
        assert float((state.weights + state.gradients + state.optimizer)[0]) == expected


def test_8b_on_one_card_fails_only_with_adam_states(make_situation, make_mesh):
    """bf16 + master 46 GB, + bf16 gradients 61 to 64 GB, + Adam 128 GB: the last does not fit 80 GB."""
    options = {"engine.grad_dtype": "bf16"}
    of = make_situation("llama-3.1-8b", "dgx-a100", 1, seq_len=1024, global_batch=1, options=options)
    parameters = count_parameters(of.model).parameters
    state = of.engine.state_bytes(ParameterGroup("w", 1), make_mesh(of, "zero=0"), of.job)
    master = 4.0
    assert (float(state.weights) + master) * parameters / 1e9 == pytest.approx(48.2, abs=0.1)
    assert (float(state.weights) + master + float(state.gradients)) * parameters / 1e9 == pytest.approx(
        64.2, abs=0.1
    )
    assert evaluate(of, parse_strategy("zero=0")).verdict == "does_not_fit"


def test_fsdp_shards_16_bytes_a_parameter(make_situation):
    """From 8 to 128 cards the peak falls by 16 B x 30.5e9 x (1/8 - 1/128), to 1 GiB (a user's strong scaling)."""
    peaks = {}
    for devices in (8, 128):
        job = {"engine": "fsdp2", "options": {"job.moe_imbalance": 1.0}}
        of = make_situation("qwen3-30b-a3b", "dgx-b200", devices, seq_len=2048, global_batch=128 * 8, **job)
        peaks[devices] = evaluate(of, parse_strategy("mbs=8")).memory.peak_allocated_bytes
    expected = 16 * 30_532_122_624 * (1 / 8 - 1 / 128)
    assert (peaks[8] - peaks[128]) / GIB == pytest.approx(expected / GIB, abs=1.0)


def test_an_eager_loss_holds_two_gradients_beside_the_log_softmax(make_situation):
    """Llama-3-8B under fsdp2, 8192 tokens, full recompute, 64 devices: torch's tracker shows 15.52 GiB at the loss,
    7.83 of them two fp32 gradients of 8192 x 128,256 logits."""
    of = make_situation("llama-3-8b", "dgx-h100", 64, seq_len=8192, global_batch=64, engine="fsdp2")
    found = evaluate(of, parse_strategy("recompute=full")).memory
    assert found.peak_phase == "loss"
    assert found.peak_allocated_bytes / GIB == pytest.approx(15.52, rel=0.03)


def test_tied_table_counts_once_and_is_stored_on_both_ends(make_situation):
    """Llama 3.2 1B: 128,256 x 2,048 elements stand on the first and the last stage when pp > 1."""
    of = make_situation("llama-3.2-1b", "dgx-h100", 2, seq_len=4096, global_batch=8)
    table = 128_256 * 2_048
    one = evaluate(of, parse_strategy("pp=1,zero=0")).memory.stages
    two = evaluate(of, parse_strategy("pp=2,zero=0")).memory.stages
    whole = one[0].by_cause["weights"]
    halves = sum(stage.by_cause["weights"] for stage in two)
    assert halves - whole == pytest.approx(2 * table, rel=1e-9)


def _expert_groups(of):
    kind = next(k for k in of.model.kinds.values() if any(isinstance(o, GroupedLinear) for o in k.operators))
    return (g for op in kind.operators if isinstance(op, GroupedLinear) for g in op.parameters())
