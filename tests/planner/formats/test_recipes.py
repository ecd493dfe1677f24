"""Megatron-Bridge overrides and NeMo recipes: read in both spellings, written, and coming back."""

import random

import pytest

from cost_models.errors import BadInput, IllegalStrategy
from cost_models.specs.job import JobRequest, Precision
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import evaluate
from planner.formats.export import PlannedRun
from planner.formats.recipes.read import assignments, read_bridge, read_nemo
from planner.formats.recipes.write import fields_of, write_bridge, write_nemo
from planner.formats.registry import find_out, read_settings
from planner.formats.settings import Beside
from planner.request import CatalogModel, PresetCluster
from planner.situation import resolve


def situation(model="llama-3.1-8b", devices=32, precision=Precision.BF16, **options):
    job = JobRequest(seq_len=4096, global_batch=256, precision=precision, options=options)
    return resolve(CatalogModel(name=model), PresetCluster(name="dgx-h100", devices=devices), job)


OF = situation()
BRIDGE = """
uv run torchrun --nproc-per-node 8 scripts/training/run_recipe.py --recipe llama31_8b_pretrain_config \\
  model.tensor_model_parallel_size=4 model.pipeline_model_parallel_size=2 model.sequence_parallel=True \\
  train.global_batch_size=128 train.micro_batch_size=2 model.seq_length=4096 \\
  model.recompute_granularity=selective model.recompute_modules=[core_attn,mlp] \\
  mixed_precision=bf16_with_mxfp8_mixed mixed_precision.grad_reduce_in_fp32=False train.train_iters=10
"""
NEMO = """
recipe = llm.llama3_8b.pretrain_recipe(num_nodes=4)
recipe.trainer.strategy.tensor_model_parallel_size = 4
recipe.trainer.strategy.pipeline_model_parallel_size = 2
recipe.trainer.strategy.sequence_parallel = True  # shards norms
recipe.data.global_batch_size = 128
recipe.data.micro_batch_size = 2
recipe.data.seq_length = 4096
recipe.model.config.recompute_granularity = "selective"
recipe.model.config.recompute_modules = ["core_attn", "mlp"]
recipe.trainer.plugins = run.Config(bf16_with_mxfp8_mixed)
recipe.trainer.plugins.grad_reduce_in_fp32 = False
recipe.trainer.max_steps = 10
"""
BRIDGE_YAML = """
model:
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  sequence_parallel: true
  seq_length: 4096
  recompute_granularity: selective
  recompute_modules: [core_attn, mlp]
train: {global_batch_size: 128, micro_batch_size: 2, train_iters: 10}
mixed_precision: {precision: bf16_with_mxfp8_mixed, grad_reduce_in_fp32: false}
"""
NEMO_YAML = """
_target_: nemo.collections.llm.api.pretrain
trainer:
  strategy:
    _target_: nemo.lightning.MegatronStrategy
    tensor_model_parallel_size: 4
    pipeline_model_parallel_size: 2
    virtual_pipeline_model_parallel_size: null
    sequence_parallel: true
  plugins: {precision: bf16_with_mxfp8_mixed, grad_reduce_in_fp32: false}
  max_steps: 10
data: {global_batch_size: 128, micro_batch_size: 2, seq_length: 4096}
model: {config: {recompute_granularity: selective, recompute_modules: [core_attn, mlp]}}
"""
PYTHON = """
cfg = pretrain_config()
cfg.model.tensor_model_parallel_size = 4
cfg.model.pipeline_model_parallel_size = 2
cfg.model.sequence_parallel = True
cfg.train.global_batch_size = 128
cfg.train.micro_batch_size = 2
cfg.model.seq_length = 4096
cfg.model.recompute_granularity = "selective"
cfg.model.recompute_modules = ["core_attn", "mlp"]
cfg.mixed_precision = "bf16_with_mxfp8_mixed"
cfg.mixed_precision.grad_reduce_in_fp32 = False
cfg.train.train_iters = 10
"""


@pytest.mark.parametrize(
    ("form", "text"),
    [("bridge", BRIDGE), ("bridge", PYTHON), ("bridge", BRIDGE_YAML), ("nemo", NEMO), ("nemo", NEMO_YAML)],
)
def test_the_spellings_say_the_same(form, text):
    assert find_out(text, "settings") == form
    found = read_settings(text, form, Beside(32, OF.model))
    strategy = found.strategy
    assert (strategy.tp, strategy.pp, strategy.dp, strategy.sp, strategy.mbs, strategy.zero) == (
        4,
        2,
        4,
        True,
        2,
        1,
    )
    assert strategy.recompute == "selective:core_attn+mlp"
    assert (found.job.global_batch, found.job.seq_len) == (128, 4096)
    assert found.job.precision is Precision.MXFP8
    assert found.job.options["engine.grad_dtype"] == "bf16"
    assert found.unknown == ()
    assert "use-distributed-optimizer=true" in found.assumed  # recipes have it, nobody stated it


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("model.tensor_model_parallel_size=4", "model.tensor_model_parallel_size=3"), ("32", "6")),
        (("bf16_with_mxfp8_mixed", "bf17"), ("bf17", "bf16_mixed")),
        (("train.micro_batch_size=2", "train.micro_batch_size=two"), ("micro-batch-size", "two")),
        (("model.seq_length=4096", ""), ("--seq-len",)),
        (("model.seq_length=4096", "model.seq_length=4096 dataset.sequence_length=2048"), ("4096", "2048")),
    ],
)
def test_what_is_wrong_is_said_with_numbers(change, words):
    with pytest.raises(BadInput) as caught:
        read_bridge(BRIDGE.replace(*change), Beside(32, OF.model))
    assert all(word in caught.value.detail for word in words), caught.value.detail


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            BRIDGE_YAML.replace("seq_length: 4096", "seq_length: ${dataset.seq_length}"),
            ("seq_length", "the value"),
        ),
        ("model: {tensor_model_parallel_size: 2, encoder_seq_length: 4096}", ("NeMo 1", "NeMo 2")),
        ("model: [1", ("no settings",)),
        ("- a\n- b", ("no settings",)),
    ],
)
def test_yaml_that_cannot_be_followed_is_refused(text, words):
    with pytest.raises(BadInput) as caught:
        read_bridge(text, Beside(32, OF.model))
    assert all(word in caught.value.detail for word in words), caught.value.detail


def test_unknown_fields_are_listed():
    text = BRIDGE.replace("model.tensor_model_parallel_size", "model.tensor_parallel_size")
    found = read_bridge(text, Beside(32, OF.model))
    assert any("model.tensor_parallel_size" in each and "tensor_model" in each for each in found.unknown)
    with pytest.raises(BadInput, match="--model"):
        read_bridge(BRIDGE, Beside(32))


UNSAID = {"bridge": ("engine.grad_dtype=bf16", "engine.fp8_param_gather=false"), "nemo": ("?",)}
"""What a named precision decides: Bridge's overrides cannot say it beside the name, NeMo's Python can."""


def test_the_precision_overwrites_what_the_gradients_section_says():
    text = BRIDGE.replace("mixed_precision.grad_reduce_in_fp32", "ddp.grad_reduce_in_fp32")
    found = read_bridge(text, Beside(32, OF.model))
    assert found.job.options["engine.grad_dtype"] == "fp32"
    assert "ddp.grad_reduce_in_fp32=false is overwritten by the mixed precision" in found.assumed
    assert found.job.options["engine.fp8_param_gather"] is True  # the named mxfp8 gathers narrow weights


def test_one_module_is_a_list_too():
    of = situation(precision=Precision.FP8)
    plan = evaluate(of, parse_strategy("tp=2,recompute=selective")).strategy
    run = PlannedRun(of, plan)
    assert "model.recompute_modules='[core_attn]'" in write_bridge(run).files["train.sh"]
    assert "recipe.model.config.recompute_modules = ['core_attn']" in write_nemo(run).files["train.py"]
    assert "recipe.trainer.plugins.fp8_param_gather = False" in write_nemo(run).files["train.py"]


@pytest.mark.parametrize(("write", "form"), [(write_bridge, "bridge"), (write_nemo, "nemo")])
def test_random_plans_come_back(write, form):
    rng, held = random.Random(6), 0
    for _ in range(30):
        model = rng.choice(("llama-3.1-8b", "qwen3-30b-a3b"))
        options = {"engine.grad_dtype": rng.choice(("fp32", "bf16")), "engine.tp_comm_overlap": False}
        options["engine.fused_cross_entropy"] = rng.random() < 0.5
        of = situation(model, precision=rng.choice((Precision.BF16, Precision.FP8)), **options)
        pp = rng.choice((1, 2, 4))
        words = f"tp={rng.choice((1, 2, 4))},cp={rng.choice((1, 2))},pp={pp},vpp={2 if pp > 1 else 1}"
        words += f",ep={rng.choice((1, 4)) if of.model.is_moe else 1},mbs={rng.choice((1, 2))}"
        words += f",recompute={rng.choice(('none', 'selective', 'full', 'full:1'))}"
        try:
            before = evaluate(of, parse_strategy(words))
        except IllegalStrategy:
            continue
        export = write(PlannedRun(of, before.strategy))
        assert [loss for loss in export.losses if not loss.startswith(UNSAID[form])] == []
        (text,) = export.files.values()
        assert find_out(text, "x") == form
        held += 1
    assert held >= 6


def test_every_field_is_written_once():
    plan = evaluate(OF, parse_strategy("tp=4,pp=2,recompute=selective")).strategy
    fields = fields_of(PlannedRun(OF, plan), "bridge")
    export = write_bridge(PlannedRun(OF, plan))
    assert assignments(export.files["train.sh"], "bridge").keys() == fields.keys()
    compile(write_nemo(PlannedRun(OF, plan)).files["train.py"], "train.py", "exec")


def test_adapters_are_a_field_of_recipes():
    of = situation(**{"job.trainable": "lora:r=8"})
    plan = evaluate(of, parse_strategy("tp=2")).strategy
    export = write_bridge(PlannedRun(of, plan))
    assert "peft.dim=8" in export.files["train.sh"]
    assert export.losses == ()


PYTHON = """
import nemo_run as run

def configure(nodes: int = 1):
    recipe = llm.llama3_8b.pretrain_recipe(dir="/x", tensor_model_parallel_size=8, num_nodes=nodes)
    recipe.trainer.strategy.tensor_model_parallel_size, recipe.trainer.strategy.sequence_parallel = 4, True
    recipe.trainer.strategy.pipeline_model_parallel_size = (
        2
    )
    recipe.data = run.Config(
        llm.MockDataModule, seq_length=4096, global_batch_size=128, micro_batch_size=2
    )
    recipe.trainer.plugins = run.Config(MegatronMixedPrecision, precision="bf16-mixed", params_dtype=torch.bfloat16)
    recipe.trainer.strategy.ddp = run.Config(DistributedDataParallelConfig, overlap_grad_reduce=False)
    recipe.trainer.plugins.grad_reduce_in_fp32 = False
    return recipe
"""


def test_python_is_read_from_its_syntax_tree():
    found = read_nemo(PYTHON, Beside(32, OF.model))
    strategy = found.strategy
    assert (strategy.tp, strategy.pp, strategy.sp, strategy.mbs) == (
        4,
        2,
        True,
        2,
    )  # later than the factory's 8
    assert (found.job.seq_len, found.job.global_batch, found.job.precision) == (4096, 128, Precision.BF16)
    assert found.job.options["engine.grad_dtype"] == "bf16"
    assert found.unknown == ()
    assert (
        read_nemo(PYTHON.replace("tensor_model_parallel_size, ", "x, ", 1), Beside(32, OF.model)).strategy.tp
        == 8
    )


def test_a_condition_over_a_field_is_refused():
    text = "recipe.data.micro_batch_size = 1\nif fast:\n    recipe.data.micro_batch_size = 2\n"
    with pytest.raises(BadInput, match=r"data\.micro_batch_size is set inside a condition"):
        read_nemo(text, Beside(32, OF.model))
    main = 'if __name__ == "__main__":\n    recipe.data.micro_batch_size = 2\n'
    assert assignments(main, "nemo") == {"data.micro_batch_size": "2"}
