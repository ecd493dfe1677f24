"""What is trained: adapters beside frozen weights, quantised bases, frozen towers; in bytes, FLOPs and seconds."""

import pytest

from cost_models.errors import InvalidJob
from cost_models.fine_tuning import NF4_BYTES
from cost_models.operators import LoraAdapter
from cost_models.operators.base import ParameterGroup, Phase, Shard, Style
from cost_models.operators.frozen import kernels_of, saved_of, step_flops_share
from cost_models.specs.counts import count_parameters
from cost_models.specs.strategy import parse_strategy
from cost_models.specs.trainable import Trainable, parse_trainable
from planner.evaluation import evaluate

LLAMA = 8_030_261_248


def situation(make_situation, trainable, engine="torch", model="llama-3.1-8b", devices=8, **options):
    job = {"engine": engine, "options": {"job.trainable": trainable, **options}}
    return make_situation(model, "dgx-h100", devices, seq_len=2048, global_batch=8, **job)


def test_forms_are_read_and_others_are_refused():
    assert parse_trainable("all") == Trainable()
    assert parse_trainable("lora:r=16,targets=q+v") == Trainable("lora", 16, ("q", "v"))
    assert parse_trainable("qlora:r=8,storage=uint8") == Trainable("qlora", 8, (), "uint8")
    for wrong in (
        "lora",
        "lora:r=0",
        "lora:r=x",
        "lora:r=8,r=9",
        "lora:r=8,storage=uint8",
        "half",
        "frozen:text",
    ):
        with pytest.raises(InvalidJob, match=r"job\.trainable"):
            parse_trainable(wrong)


def test_adapters_of_all_linears_are_counted(make_situation):
    """Rank 16 in 32 blocks of Llama-3.1-8B: r (in + out) for every product.

    q 4096 + 4096, k and v 4096 + 1024, out 4096 + 4096, gate and up 4096 + 14,336, down 14,336 + 4096:
    16 x 81,920 x 32 = 41,943,040, what the peft library prints for it.
    """
    counts = situation(make_situation, "lora:r=16").counts
    assert (counts.trainable, counts.parameters - counts.trainable) == (41_943_040, LLAMA)


def test_targets_choose_linears_or_their_parts(make_situation):
    """q and v alone: 16 x (8192 + 5120) x 32."""
    assert situation(make_situation, "lora:r=16,targets=q_proj+v_proj").counts.trainable == 6_815_744
    with pytest.raises(InvalidJob, match="none of the linears nothing"):
        situation(make_situation, "lora:r=16,targets=nothing")


def test_frozen_weights_cost_2_bytes_and_adapters_16(make_situation, make_mesh):
    """On one device: 2 x 8.03e9 + 16 x 41.9e6 bytes of weights, gradients and optimizer under fsdp2."""
    of = situation(make_situation, "lora:r=16", "fsdp2", devices=1)
    stage = evaluate(of, parse_strategy("recompute=full")).memory.stages[0]
    states = sum(stage.by_cause[cause] for cause in ("weights", "gradients", "optimizer"))
    assert states == pytest.approx(2 * LLAMA + 16 * 41_943_040, rel=1e-9)


def test_frozen_weights_need_no_weight_gradient_and_no_input(make_situation):
    of = situation(make_situation, "lora:r=16,targets=q")
    down = next(op for op in of.model.kinds["dense"].operators if op.name == "down")
    at = Shard(1.0, 2048.0, 2048.0)
    assert {kernel.phase for kernel in kernels_of(down, at, Style())} == {Phase.FORWARD, Phase.INPUT_GRADIENT}
    assert saved_of(down, at, Style()) == ()
    assert step_flops_share(down) == 2.0


def test_nothing_passes_below_the_first_adapter(make_situation):
    embedding = situation(make_situation, "lora:r=16").model.kinds["embedding"].operators
    at = Shard(1.0, 2048.0, 2048.0)
    phases = {kernel.phase for op in embedding for kernel in kernels_of(op, at, Style())}
    assert phases <= {Phase.FORWARD}
    assert {op.frozen for op in embedding} == {"whole"}


def test_a_step_costs_two_thirds_of_the_flops(make_situation):
    """Products 4 instead of 6 FLOPs a weight and token; attention's own products 6; rank 16 adds about 1 %."""
    whole = situation(make_situation, "all").model_flops
    adapted = situation(make_situation, "lora:r=16").model_flops
    assert 0.66 < adapted / whole < 0.72
    steps = [
        evaluate(situation(make_situation, kind), parse_strategy("zero=0")).step_s
        for kind in ("all", "lora:r=16")
    ]
    assert steps[1] < 0.8 * steps[0]


def test_quantised_weights_are_half_a_byte_and_are_unpacked(make_situation, make_mesh):
    """NF4: 1/2 byte, a byte for 64 and an fp32 for 64 x 256 weights; unpacked in forward and backward."""
    assert pytest.approx(0.5 + 1 / 64 + 4 / 16_384) == NF4_BYTES
    plain, packed = (situation(make_situation, f"{kind}:r=16", "fsdp2") for kind in ("lora", "qlora"))
    at = Shard(1.0, 2048.0, 2048.0)
    names = [
        next(op for op in of.model.kinds["dense"].operators if op.name == "down") for of in (plain, packed)
    ]
    assert len(kernels_of(names[1], at, Style())) == len(kernels_of(names[0], at, Style())) + 2


@pytest.mark.parametrize(
    ("engine", "trainable", "weights"),
    [
        ("fsdp2", "qlora:r=8", NF4_BYTES / 8),
        ("fsdp2", "qlora:r=8,storage=uint8", NF4_BYTES),
        ("deepspeed", "qlora:r=8", NF4_BYTES),
    ],
)
def test_quantised_weights_divide_under_fsdp_alone(make_situation, make_mesh, engine, trainable, weights):
    """With a storage type that matches the others'; never under ZeRO-3."""
    of = situation(make_situation, trainable, engine)
    group = ParameterGroup("w", 1, frozen=True, storage_bytes=NF4_BYTES)
    state = of.engine.group_bytes(group, make_mesh(of, "zero=3"), of.job)
    assert float(state.weights[0]) == pytest.approx(weights)
    assert float((state.gradients + state.optimizer)[0]) == 0.0


def test_frozen_16_bit_weights_divide_under_zero_3(make_situation, make_mesh):
    of = situation(make_situation, "lora:r=8", "deepspeed")
    group = ParameterGroup("w", 1, frozen=True)
    assert float(of.engine.group_bytes(group, make_mesh(of, "zero=3"), of.job).weights[0]) == pytest.approx(
        2 / 8
    )
    assert float(of.engine.group_bytes(group, make_mesh(of, "zero=2"), of.job).weights[0]) == 2.0
    assert float(of.engine.group_plan(group, make_mesh(of, "zero=3"), of.job).forward_gather[0]) == 2.0


def test_experts_have_adapters_of_their_own(make_situation):
    """Qwen3-30B-A3B, rank 8: in each of 48 blocks 128 experts with 3 pairs of 8 x (2048 + 768)."""
    of = situation(make_situation, "lora:r=8", "megatron", model="qwen3-30b-a3b")
    adapters = [op for op in of.model.kinds["moe"].operators if isinstance(op, LoraAdapter) and op.experts]
    elements = sum(group.elements for op in adapters for group in op.parameters())
    fused = 8 * (2048 + 2 * 768) + 8 * (768 + 2048)  # gate and up are one product
    assert elements == 128 * fused


def test_adapters_are_recomputed_with_their_linear(make_situation):
    kind = situation(make_situation, "lora:r=16").model.kinds["dense"]
    scope = next(scope for scope in kind.scopes if scope.name == "mlp")
    assert {"gate_up_lora", "down_lora"} <= set(scope.operators)


def test_a_frozen_vision_tower_has_no_backward(make_situation):
    of = situation(make_situation, "frozen:vision", model="llava-1.5-7b")
    plain = situation(make_situation, "all", model="llava-1.5-7b")
    tower = plain.counts.parameters - of.counts.trainable
    assert 0.29e9 < tower < 0.31e9  # CLIP ViT-L/14 at 336 pixels
    found, whole = (evaluate(each, parse_strategy("zero=0")) for each in (of, plain))
    assert found.memory.peak_allocated_bytes < whole.memory.peak_allocated_bytes - 14 * tower
    assert found.step_s < whole.step_s
    with pytest.raises(InvalidJob, match="no vision tower"):
        situation(make_situation, "frozen:vision")


def test_a_frozen_tower_is_never_run_again(make_situation):
    """It keeps nothing and has no backward, so full recompute adds a forward of the language model alone."""
    of = situation(make_situation, "frozen:vision", model="llava-1.5-7b")
    plain = situation(make_situation, "all", model="llava-1.5-7b")
    again, whole = (evaluate(each, parse_strategy("recompute=full,zero=0")) for each in (of, plain))
    none = evaluate(of, parse_strategy("recompute=none,zero=0"))
    assert none.recompute_s == 0.0
    assert 0.0 < again.recompute_s < whole.recompute_s
    assert again.step_s > none.step_s


def test_counts_of_a_model_that_is_trained_whole_are_as_before(make_situation):
    counts = count_parameters(situation(make_situation, "all").model)
    assert counts.trainable == counts.parameters == LLAMA
