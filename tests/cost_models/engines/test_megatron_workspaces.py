"""Bytes that a Megatron-LM rank allocates beside its tensors, held to what test runs keep between steps."""

import pytest

from cost_models.engines.megatron_workspaces import overlap_buffer_bytes, score_buffer_bytes, workspace_bytes
from cost_models.engines.options import MegatronOptions
from cost_models.mesh import MeshBatch, batch_of, mesh_key
from cost_models.operators import LmHead
from cost_models.operators.base import Shard, Style
from cost_models.operators.elementwise import Activation
from cost_models.operators.loss import CrossEntropy
from cost_models.operators.state_space import StateSpaceScan
from cost_models.schedule.names import ScheduleName
from cost_models.specs.model import ModelSpec
from cost_models.specs.recompute import Recompute
from cost_models.specs.strategy import Strategy
from cost_models.units import MIB
from planner.formats.megatron import read_megatron

DENSE = {
    "num-layers": "12",
    "hidden-size": "512",
    "num-attention-heads": "8",
    "micro-batch-size": "4",
    "seq-length": "1024",
    "max-position-embeddings": "1024",
    "bf16": "true",
}


def _model(**more: str) -> ModelSpec:
    return read_megatron(DENSE | {name.replace("_", "-"): value for name, value in more.items()}, 8).model


def _meshes(tp: int) -> MeshBatch:
    ones = dict.fromkeys(("cp", "pp", "vpp", "ep", "etp", "dp_replicate", "zero"), 1)
    schedule, data = ScheduleName.ONE_F_ONE_B, 8 // tp
    strategy = Strategy(
        **ones,
        tp=tp,
        dp=data,
        dp_shard=data,
        mbs=4,
        sp=False,
        schedule=schedule,
        recompute=Recompute(),
        stages=(12,),
    )
    return batch_of([strategy], mesh_key(strategy))


@pytest.mark.parametrize(
    ("architecture", "options", "mib"),
    [
        ("ampere", {}, 20.25),  # 2 x 8.125 + 4; runs on A100 without deterministic kernels keep 24 to 30 MiB
        ("ampere", {"deterministic": True}, 68.0),  # 2 x 32 + 4; measured 68
        ("hopper", {}, 96.0),  # 2 x 32 + 32; measured 96
        ("blackwell", {"deterministic": True}, 96.0),
        ("ampere", {"deterministic": True, "transformer_impl": "local"}, 64.0),
        ("hopper", {"tp_comm_overlap": True}, 160.0),  # three streams instead of one
    ],
)
def test_gemm_workspaces_of_a_dense_model(architecture: str, options: dict[str, object], mib: float):
    assert workspace_bytes(architecture, _model(), MegatronOptions(**options)) == mib * MIB


def test_grouped_products_have_a_workspace_for_each_stream():
    experts = _model(num_experts="8")
    grouped = workspace_bytes("hopper", experts, MegatronOptions())
    looped = workspace_bytes("hopper", experts, MegatronOptions(grouped_gemm=False))
    assert grouped - looped == 4 * 32 * MIB  # measured: 234 against 106 MiB on H100
    assert workspace_bytes("hopper", _model(), MegatronOptions()) == looped


def test_one_buffer_of_scores_serves_all_layers_of_the_local_implementation():
    # 4 sequences x 8 heads / tp x 1024 x 1024 x 2 bytes = 64 MiB / tp; measured 60 and 14 MiB at tp 1 and 4
    for tp in (1, 4):
        assert score_buffer_bytes(_model(), 1024, 2.0, _meshes(tp))[0] == 64 * MIB / tp


def test_overlapped_tensor_parallelism_registers_ten_hidden_states():
    # 4 x 1024 tokens x 512 x 2 bytes = 4 MiB each
    assert overlap_buffer_bytes(_model(), 1024, 2.0, _meshes(2))[0] == 40 * MIB
    assert overlap_buffer_bytes(_model(), 1024, 2.0, _meshes(1))[0] == 0.0


AT = Shard(sequences=4, seq_len=1024, context_len=1024)


def test_a_compiled_native_loss_holds_an_fp32_copy_of_the_logits():
    loss = CrossEntropy(name="loss", inputs=("logits",), vocab_size=1000)
    fused = Style(fused_cross_entropy=True, cross_entropy_in_place=False)
    compiled = Style(fused_cross_entropy=True, cross_entropy_in_place=False, cross_entropy_copy=True)
    entries = 4 * 1024 * 1000
    assert loss.transient(AT, compiled).forward - loss.transient(AT, fused).forward == 4 * entries
    assert loss.transient(AT, compiled).backward == loss.transient(AT, fused).backward


def test_deferred_weight_gradients_keep_inputs_and_gradients_of_the_head():
    head = LmHead(name="logits", inputs=("x",), vocab_size=1000, width=512)
    plain, deferred = (head.saved(AT, Style(deferred_head_batches=n)) for n in (0, 2))
    # two micro-batches of 4096 tokens x (512 + 1000), and an empty gradient of 1000 x 512
    assert deferred[:-1] == plain
    assert deferred[-1].elements == 2 * 4096 * 1512 + 1000 * 512


def test_an_unfused_activation_of_experts_keeps_its_value_beside_the_weighted_one():
    plain, gated = (
        Activation(name="act", width=2048, gated=gated, expert_top_k=2) for gated in (False, True)
    )
    style = Style(weighted_experts=True)
    extra = plain.saved(AT, style)[-1]
    assert extra.elements == 4096 * 2 * 2048
    assert gated.saved(AT, style) == gated.saved(AT, Style())
    dense = Activation(name="act", width=2048)
    assert dense.saved(AT, style) == dense.saved(AT, Style())


def test_a_fused_scan_keeps_neither_the_convolved_tensor_nor_states():
    scan = StateSpaceScan(name="scan", inputs=("conv",), heads=32, head_dim=64, state=128, groups=8)
    (steps,) = scan.saved(AT, Style(fused_scan=True))
    assert steps.elements == 4096 * 32
    assert len(scan.saved(AT, Style())) == 2
