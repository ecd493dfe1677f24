"""Single modules on the host: which tensors they keep alone, what they free and cost, legality, search, files."""

import json

import pytest

from cost_models.errors import BadInput, IllegalStrategy
from cost_models.module_offload import MODULES, modules_of, moved_bytes, operators_of
from cost_models.operators.base import Shard
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import Context, evaluate
from planner.formats.export import PlannedRun
from planner.formats.megatron.write import write_megatron
from planner.formats.recipes.write import fields_of
from planner.formats.registry import read_settings
from planner.formats.settings import Beside
from planner.make_plan import make_plan
from planner.request import SearchRequest
from planner.verify import verify

GIB = 2.0**30
ALL = "modules:" + "+".join(MODULES)
AT = Shard(1.0, 4096.0, 4096.0, 0, 1.0, 1.0, 1.0, 1.0, 0.0)


@pytest.fixture(scope="module")
def moe(make_situation):
    return make_situation("qwen3-30b-a3b", "dgx-h100", 16, seq_len=4096, global_batch=64)


@pytest.fixture(scope="module")
def latent(make_situation):
    return make_situation("deepseek-v2-lite", "dgx-h100", 16, seq_len=4096, global_batch=64)


def moved(of, kind, modules, scopes=()):
    return float(moved_bytes(of.model.kinds[kind], modules, AT, of.engine.style(of.job, "ring"), scopes))


def test_modules_are_those_of_their_own(moe, latent):
    """A norm before a fused linear is no module; before latent attention and routed experts it is."""
    assert modules_of(moe.model) == tuple(name for name in MODULES if name != "attn_norm")
    assert modules_of(latent.model) == MODULES
    assert operators_of(latent.model.kinds["dense"], "mlp_norm") == frozenset()
    assert operators_of(moe.model.kinds["moe"], "qkv_linear") == {"attn_norm", "qkv", "q_norm", "k_norm"}
    assert operators_of(moe.model.kinds["head"], "core_attn") == frozenset()


def test_bytes_of_qwen3(moe):
    """4,096 tokens of 2,048, 32 heads of 128, 4 of keys and values, 8 of 128 experts of 768.

    The attention keeps q, k, v and its output, the output shared with the projection behind it; its sums of 32 x 4,096
    fp32 numbers are too small to move.
    """
    tokens = 4096
    inputs, output = 2 * tokens * (32 + 4 + 4) * 128, 2 * tokens * 32 * 128
    assert moved(moe, "moe", ("core_attn",)) == inputs
    assert moved(moe, "moe", ("core_attn", "attn_proj")) == inputs + output
    copies = 8 * tokens
    assert moved(moe, "moe", ("expert_fc1",)) == 2 * copies * 2048
    assert moved(moe, "moe", ("moe_act",)) == 2 * copies * 2 * 768
    assert moved(moe, "moe", ("moe_act",), ("moe_act",)) == moved(
        moe, "moe", ("moe_act",)
    )  # its input is kept


def test_a_measured_run(make_situation):
    """Megatron-Core's functional test of all seven modules (15 layers, latent attention, GB200 and H100): 6.62 to
    6.67 GiB at the peak of a rank, where 13.0 would be without; its recompute and layout are those of the arguments."""
    words = (
        "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --expert-model-parallel-size 4 "
        "--expert-tensor-parallel-size 1 --use-distributed-optimizer --attention-backend unfused --sequence-parallel "
        "--disable-bias-linear --micro-batch-size 1 --global-batch-size 8 --recompute-granularity selective "
        '--recompute-modules "[layernorm mla_up_proj mlp moe_act]" --fine-grained-activation-offloading '
        '--offload-modules "[expert_fc1 moe_act attn_norm mlp_norm qkv_linear core_attn attn_proj]" '
        '--seq-length 4096 --num-layers 15 --moe-layer-freq "([0]*3+[1]*12)" '
        '--pipeline-model-parallel-layout "Et*3|(tt|)*6L" --hidden-size 1024 --ffn-hidden-size 4096 '
        "--num-attention-heads 32 --kv-channels 128 --max-position-embeddings 4096 --position-embedding-type rope "
        "--make-vocab-size-divisible-by 3232 --normalization RMSNorm --swiglu --untie-embeddings-and-output-weights "
        "--multi-latent-attention --attention-dropout 0.0 --hidden-dropout 0.0 --qk-layernorm --num-experts 32 "
        "--moe-ffn-hidden-size 1024 --moe-shared-expert-intermediate-size 1024 --moe-router-topk 4 "
        "--moe-grouped-gemm --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 "
        "--v-head-dim 128 --moe-router-dtype fp32 --bf16"
    )
    from planner.request import PresetCluster
    from planner.situation import resolve_cluster, situate

    settings = read_settings("pretrain_gpt.py " + words, "megatron", Beside(8, None, {}, ""))
    options = {**settings.job.options, "engine.expandable_segments": True, "job.moe_imbalance": 1.2}
    cluster = resolve_cluster(PresetCluster(name="dgx-h100", devices=8))
    of = situate(settings.model, cluster, settings.job.model_copy(update={"options": options}))
    found = evaluate(of, settings.strategy)
    assert found.memory.stages[-1].allocated_bytes == pytest.approx(6.65 * GIB, rel=0.08)
    without = evaluate(of, settings.strategy.model_copy(update={"act_offload": "none"}))
    assert without.memory.stages[-1].allocated_bytes > 12.5 * GIB


def test_more_modules_need_less_of_the_device_and_more_of_the_host(moe):
    texts = (
        "none",
        "modules:core_attn",
        "modules:attn_proj+core_attn",
        "modules:attn_proj+core_attn+expert_fc1",
    )
    found = [evaluate(moe, parse_strategy(f"pp=4,ep=4,act_offload={text}")) for text in texts]
    used = [one.memory.stages[0].by_cause["activations"] for one in found]
    assert used == sorted(used, reverse=True) and used[0] > 1.7 * used[-1]
    assert [one.step_s for one in found] == sorted(one.step_s for one in found)
    assert [one.memory.host_bytes for one in found] == sorted(one.memory.host_bytes for one in found)
    for one in found:
        verify(Context.of(moe), one)


def test_the_host_holds_every_micro_batch_in_flight(moe):
    """12 of 48 layers a rank, four micro-batches in flight on the first: 12 x 4 x (80 + 64) MiB."""
    one = evaluate(moe, parse_strategy("pp=4,ep=4,act_offload=modules:attn_proj+core_attn"))
    layer = 2 * 4096 * (40 + 32) * 128
    assert one.memory.host_bytes == 4 * 12 * layer


@pytest.mark.parametrize(
    ("engine", "text", "rule"),
    [
        ("megatron", "act_offload=modules:attn_proj", "act_offload_attn_proj"),
        ("megatron", "act_offload=modules:attn_norm", "act_offload_module"),
        ("megatron", "act_offload=modules:expert_fc1,recompute=selective:moe", "act_offload_moe"),
        ("megatron", "act_offload=modules:core_attn,recompute=full", "act_offload_recompute"),
        ("megatron@0.15", "act_offload=modules:core_attn", "act_offload"),
        ("megatron", "act_offload=blocks:3,pp=4", "act_offload_pp"),
        ("torch", "act_offload=modules:core_attn", "act_offload"),
        ("deepspeed", "act_offload=modules:core_attn", "act_offload"),
    ],
)
def test_refusals_name_the_rule(make_situation, engine, text, rule):
    of = make_situation("qwen3-30b-a3b", "dgx-h100", 16, seq_len=4096, global_batch=64, engine=engine)
    with pytest.raises(IllegalStrategy) as refused:
        evaluate(of, parse_strategy(text))
    assert rule in {violation.rule for violation in refused.value.violations}


def test_graphs_hold_no_offloaded_module(make_situation):
    of = make_situation(
        "qwen3-30b-a3b", "dgx-h100", 16, seq_len=4096, global_batch=64, options={"engine.cuda_graphs": True}
    )
    assert of.engine.space(of.model, of.job).act_offload == ("blocks",)


def test_the_search_takes_modules_where_they_help(make_situation):
    """Qwen3-30B on one node at 32,768 tokens: nothing fits with pp 4 and without recompute, but for the host."""
    of = make_situation("qwen3-30b-a3b", "dgx-h100", 8, seq_len=32768, global_batch=16)
    pins = {"pp": 4, "recompute": "none", "ep": "1..4"}
    alone = make_plan(of, SearchRequest(pins={**pins, "tp": 1, "cp": 1}, explain=False))
    found = make_plan(
        of, SearchRequest(pins={**pins, "tp": 1, "cp": 1, "act_offload": "allowed"}, explain=False)
    )
    assert any(text.startswith("modules:") for text in found.certificate.space["act_offload"])
    if alone.best is not None:
        assert found.best.step_s <= alone.best.step_s
    else:
        assert found.best is None or found.best.strategy.act_offload.startswith("modules:")


def test_arguments_come_back(moe):
    strategy = evaluate(
        moe, parse_strategy("pp=4,ep=4,act_offload=modules:core_attn+attn_proj+expert_fc1")
    ).strategy
    run = PlannedRun(moe, strategy)
    exported = write_megatron(run)
    script = exported.files["train.sh"]
    assert "--fine-grained-activation-offloading\n" in script
    assert "--offload-modules attn_proj core_attn expert_fc1\n" in script
    assert not [loss for loss in exported.losses if "act_offload" in loss]
    again = read_settings(script, "megatron", Beside(16, None, {}, ""))
    assert again.strategy.act_offload == strategy.act_offload
    fields = fields_of(run, "bridge")
    assert fields["model.offload_modules"] == ["attn_proj", "core_attn", "expert_fc1"]
    assert fields["model.fine_grained_activation_offloading"] == "true"
    assert json.dumps(strategy.to_json())
    without = script.replace("  --offload-modules attn_proj core_attn expert_fc1\n", "")
    with pytest.raises(BadInput, match="without --offload-modules"):
        read_settings(without, "megatron", Beside(16, None, {}, ""))
