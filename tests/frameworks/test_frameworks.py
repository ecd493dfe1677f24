"""The frameworks' own parsers and validation take what is exported, and refuse what our rules refuse."""

import json
import re
import shlex

import pytest
import yaml

from cost_models.specs.strategy import parse_strategy
from planner.evaluation import evaluate
from planner.formats.accelerate.write import write_accelerate
from planner.formats.deepspeed.write import write_deepspeed
from planner.formats.export import PlannedRun
from planner.formats.megatron.tokens import arguments_of_text
from planner.formats.megatron.write import environment, write_megatron
from planner.formats.recipes.fields import PLACES
from planner.formats.recipes.write import write_bridge
from planner.formats.shell import shell_words
from planner.formats.torchtitan.write import write_torchtitan
from tests.frameworks.ask import ask
from tests.frameworks.plans import random_runs, situation

pytestmark = pytest.mark.frameworks

HUGGING_FACE = {"engine.modules": "transformers"}


def megatron_case(run):
    """Arguments as the script gives them; Transformer Engine is absent, whose fused rotary kernel is the default."""
    raw = arguments_of_text(write_megatron(run).files["train.sh"].replace(' "$@"', ""))
    words = ["--no-rope-fusion"] if "rotary-base" in raw else []
    for name, value in raw.items():
        words += [f"--{name}", *([] if value == "true" else value.split())]
    return {"world": run.strategy.world_size, "environment": environment(run), "words": words}


@pytest.mark.parametrize(
    "model", ["llama-3.1-8b", "gpt2-large", "qwen3-30b-a3b", "deepseek-v2-lite", "mixtral-8x7b"]
)
def test_megatron(model):
    runs = list(random_runs(situation(model, "megatron"), 1, 12))
    assert len(runs) == 12
    for run, verdict in zip(runs, ask("megatron", [megatron_case(run) for run in runs]), strict=True):
        assert verdict["ok"], (run.strategy.text(), verdict)
        assert verdict["dp"] == run.strategy.dp
        assert tuple(verdict["layers"]) == run.strategy.stages


def test_megatron_takes_hierarchical_context_as_we_write_it():
    of = situation("llama-3.1-8b", "megatron", 64)
    run = PlannedRun(of, evaluate(of, parse_strategy("cp=16,cp_kind=hierarchical:4,recompute=full")).strategy)
    right, missing = megatron_case(run), megatron_case(run)
    at = missing["words"].index("--hierarchical-context-parallel-sizes")
    del missing["words"][at : at + 3]
    verdicts = ask("megatron", [right, missing])
    assert verdicts[0]["ok"], verdicts[0]
    assert "hierarchical-context-parallel-sizes must be set" in verdicts[1]["error"]


def test_megatron_takes_modules_on_the_host_where_our_rules_do():
    of = situation("qwen3-30b-a3b", "megatron", 16)
    text = "pp=2,ep=4,act_offload=modules:core_attn+attn_proj+expert_fc1"
    run = PlannedRun(of, evaluate(of, parse_strategy(text)).strategy)
    right, alone, inside = (megatron_case(run) for _ in range(3))
    alone["words"].remove("core_attn")
    inside["words"] += ["--recompute-granularity", "selective", "--recompute-modules", "moe"]
    verdicts = ask("megatron", [right, alone, inside])
    assert verdicts[0]["ok"], verdicts[0]
    assert "attn_proj cannot be set" in verdicts[1]["error"]
    assert "while recomputing the entire MoE layer" in verdicts[2]["error"]


def test_megatron_places_predictions_where_stages_do():
    options = {"job.train_mtp": True, "engine.mtp_in_stages": True}
    of = situation("deepseek-v3", "megatron", 512, **options)
    runs = []
    for end in (("2", "1", "0"), ("1", "2", "0"), ("1", "1", "1")):
        text = "tp=2,pp=16,ep=32,vpp=2,recompute=selective:moe_act,stages=" + "+".join(
            ["3", *["2"] * 28, *end]
        )
        runs.append(PlannedRun(of, evaluate(of, parse_strategy(text)).strategy))
    for run, verdict in zip(runs, ask("megatron", [megatron_case(run) for run in runs]), strict=True):
        assert verdict["ok"], verdict
        own = [*run.strategy.stages]
        own[max(stage for stage, size in enumerate(own) if size)] -= 1
        assert verdict["layers"] == own


BRIDGE_MODELS = {
    "llama-3.1-8b": {"num_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_query_groups": 8},
    "llama-3.1-70b": {"num_layers": 80, "hidden_size": 8192, "num_attention_heads": 64, "num_query_groups": 8},
    "qwen3-30b-a3b": {
        "num_layers": 48, "hidden_size": 2048, "num_attention_heads": 32, "num_query_groups": 4,
        "num_moe_experts": 128, "moe_router_topk": 8, "moe_ffn_hidden_size": 768,
    },
}  # fmt: skip
"""What a recipe states of the model; its sequence length is another, so that the override has to change it."""


def bridge_case(run, more=()):
    """Overrides as the script gives them."""
    words = shell_words(write_bridge(run).files["train.sh"])
    sections = ("model.", "train.", "ddp.", "optimizer.", "dataset.", "comm_overlap.", "mixed_precision=")
    model = BRIDGE_MODELS[run.model.name] | {"seq_length": 2048, "vocab_size": 128_000}
    words = [word for word in words if word.startswith(sections)]
    return {"world": run.strategy.world_size, "model": model, "words": [*words, *more]}


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b"])
def test_bridge(model):
    runs = list(random_runs(situation(model, "megatron"), 5, 12))
    for run, verdict in zip(runs, ask("bridge", [bridge_case(run) for run in runs]), strict=True):
        assert verdict["ok"], (run.strategy.text(), verdict)
        wanted = (run.strategy.dp, run.strategy.tp, [512, run.strategy.mbs])
        assert (verdict["dp"], verdict["tp"], verdict["batch"]) == wanted


def test_bridge_knows_every_field_and_refuses_others():
    model = BRIDGE_MODELS["llama-3.1-8b"] | {"seq_length": 4096, "vocab_size": 128_000}
    empty = {"number": "null", "switch": "false", "word": "null", "words": "[]"}
    fields = [(field, empty[place.kind]) for place in PLACES.values() for field in place.bridge]
    cases = [{"world": 64, "model": model, "words": [f"{field}={value}"]} for field, value in fields]
    verdicts = ask("bridge", cases)
    assert [v["error"] for v in verdicts if "Could not override" in v.get("error", "")] == []
    run = next(iter(random_runs(situation("llama-3.1-8b", "megatron"), 5, 1)))
    wrong = ["model.bogus=1", "model.tensor_model_parallel_size=3", "dataset.seq_length=1024"]
    verdicts = ask("bridge", [bridge_case(run, [each]) for each in wrong])
    assert [verdict["ok"] for verdict in verdicts] == [False] * 3


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"tensor-model-parallel-size": "3"}, "not divisible"),
        ({"num-query-groups": "6", "tensor-model-parallel-size": "4"}, "num_query_groups"),
        ({"pipeline-model-parallel-size": "4", "num-virtual-stages-per-pipeline-rank": "3"}, "divisible"),
        ({"global-batch-size": "100"}, "divisible"),
    ],
)
def test_megatron_refuses_what_is_wrong(changes, why):
    of = situation("llama-3.1-8b", "megatron")
    case = megatron_case(PlannedRun(of, evaluate(of, parse_strategy("tp=2")).strategy))
    words = case["words"]
    for name, value in changes.items():
        if f"--{name}" in words:
            words[words.index(f"--{name}") + 1] = value
        else:
            words += [f"--{name}", value]
    (verdict,) = ask("megatron", [case])
    assert not verdict["ok"]
    assert why in verdict["error"]


def test_deepspeed():
    runs = list(random_runs(situation("llama-3.1-8b", "deepspeed", **HUGGING_FACE), 2, 12))
    files = [write_deepspeed(run).files for run in runs]
    cases = [
        {
            "world": run.strategy.dp * run.strategy.cp,
            "config": json.loads(each["ds_config.json"]),
            "arguments": json.loads(each["training_arguments.json"]),
        }
        for run, each in zip(runs, files, strict=True)
    ]
    for run, verdict in zip(runs, ask("deepspeed", cases), strict=True):
        assert verdict["ok"], (run.strategy.text(), verdict)
        assert verdict["stage"] == run.strategy.zero
        assert verdict["batch"][:2] == [512, run.strategy.mbs]


def test_deepspeed_refuses_what_is_wrong():
    of = situation("llama-3.1-8b", "deepspeed", **HUGGING_FACE)
    config = json.loads(
        write_deepspeed(PlannedRun(of, evaluate(of, parse_strategy("zero=3")).strategy)).files[
            "ds_config.json"
        ]
    )
    wrong = [config | {"train_batch_size": 100}, config | {"zero_optimization": {"stage": 4}}]
    wrong.append(config | {"fp16": {"enabled": True}})
    verdicts = ask("deepspeed", [{"world": 64, "config": each, "arguments": {}} for each in wrong])
    assert [verdict["ok"] for verdict in verdicts] == [False] * 3


def test_accelerate():
    runs = list(random_runs(situation("llama-3.1-8b", "fsdp2", **HUGGING_FACE), 3, 10))
    texts = [write_accelerate(run).files["accelerate.yaml"] for run in runs]
    verdicts = ask("accelerate", [{"world": 64, "text": text} for text in texts])
    for run, verdict in zip(runs, verdicts, strict=True):
        assert verdict["ok"], (run.strategy.text(), verdict)
        assert (verdict["version"], verdict["reshard"]) == (2, run.strategy.zero == 3)
    values = yaml.safe_load(texts[0])
    wrong = [values | {"bogus": 1}, values | {"distributed_type": "FOO"}]
    verdicts = ask("accelerate", [{"world": 64, "text": yaml.safe_dump(each)} for each in wrong])
    assert [verdict["ok"] for verdict in verdicts] == [False, False]


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-30b-a3b"])
def test_torchtitan(model):
    runs = list(random_runs(situation(model, "torchtitan"), 4, 8))
    uneven = parse_strategy("pp=4,stages=" + {32: "4+12+4+12", 48: "6+18+6+18"}[runs[0].model.num_blocks])
    runs.append(PlannedRun(runs[0].situation, evaluate(runs[0].situation, uneven).strategy))
    cases = [titan_case(run) for run in runs]
    for run, verdict in zip(runs, ask("torchtitan", cases), strict=True):
        plan = run.strategy
        assert verdict["ok"], (plan.text(), verdict)
        wanted = {axis: getattr(plan, axis) for axis in ("dp_replicate", "dp_shard", "cp", "tp", "pp", "ep")}
        assert verdict["dims"] == wanted
        assert tuple(verdict["layers"]) in ((), plan.stages)
    assert verdict["layers"]
    broken = [*cases[0]["words"]]
    broken[broken.index("--parallelism.tensor_parallel_degree") + 1] = "3"
    (verdict,) = ask("torchtitan", [{"world": 64, "words": broken}])
    assert not verdict["ok"]


def titan_case(run):
    """Options as the script gives them, its defaults put in, and the module beside it."""
    files = dict(write_torchtitan(run).files)
    script = files.pop("train.sh")
    words = shell_words(script)
    start = words.index("--module")
    environment = {}
    for line in script.splitlines():
        if files and line.startswith("export "):
            pairs = shlex.split(line.removeprefix("export "), comments=True)
            environment |= dict(pair.split("=", 1) for pair in pairs if "PATH" not in pair)
    environment = {key: re.sub(r"\$\{\w+:-(.*)\}", r"\1", value) for key, value in environment.items()}
    words = [word for word in words[start:] if word != "$@"]
    return {"world": run.strategy.world_size, "words": words, "files": files, "environment": environment}
