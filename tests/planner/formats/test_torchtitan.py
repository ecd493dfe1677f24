"""torchtitan options in TOML and on the command line; exports come back."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from cost_models.errors import BadInput, IllegalStrategy
from cost_models.specs.job import JobRequest, Precision
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import evaluate
from planner.formats.export import PlannedRun
from planner.formats.registry import find_out
from planner.formats.settings import Beside
from planner.formats.torchtitan.read import read_torchtitan
from planner.formats.torchtitan.stages import options_of, split
from planner.formats.torchtitan.write import write_torchtitan
from planner.request import CatalogModel, PresetCluster
from planner.situation import resolve


def situation(model="llama-3.1-8b", devices=32, global_batch=256, **options):
    job = JobRequest(seq_len=8192, global_batch=global_batch, engine="torchtitan", options=options)
    return resolve(CatalogModel(name=model), PresetCluster(name="dgx-h100", devices=devices), job)


OF = situation()

TOML = """
[model]
name = "llama3"
flavor = "8B"
converters = ["float8"]
[optimizer]
name = "AdamW"
lr = 3e-4
[training]
local_batch_size = 4
seq_len = 8192
max_norm = 1.0
steps = 1000
[parallelism]
data_parallel_replicate_degree = 2
data_parallel_shard_degree = -1
tensor_parallel_degree = 4
pipeline_parallel_degree = 2
pipeline_parallel_schedule = "Interleaved1F1B"
[activation_checkpoint]
mode = "full"
[compile]
enable = true
"""


def test_toml():
    found = read_torchtitan(TOML, Beside(32, OF.model))
    strategy = found.strategy
    assert (strategy.tp, strategy.pp, strategy.dp_replicate, strategy.dp_shard, strategy.vpp) == (
        4,
        2,
        2,
        2,
        2,
    )
    assert strategy.stages == (8, 9, 8, 7)  # 34 = 32 + embedding + head: 9, 9, 8, 8, less one on either end
    assert (strategy.mbs, strategy.zero, strategy.recompute) == (1, 2, "full")  # kept with a pipeline
    assert (found.job.global_batch, found.job.seq_len) == (16, 8192)  # 4 a rank x dp 4
    assert found.job.precision is Precision.FP8
    assert found.job.options == {"engine.compile": True}
    assert found.unknown == ()


def test_command_line():
    words = (
        "torchrun -m torchtitan.train --module llama3 --config llama3_8b --parallelism.tensor_parallel_degree 8 "
        "--parallelism.data-parallel-shard-degree=4 --training.local_batch_size 2 --compile.enable "
        "--training.global_batch_size 64 --training.seq_len 4096 activation-checkpoint:none"
    )
    found = read_torchtitan(words, Beside(32, OF.model))
    assert (found.strategy.tp, found.strategy.dp_shard, found.strategy.mbs) == (8, 4, 2)
    assert (found.strategy.recompute, found.job.global_batch) == ("none", 64)
    assert find_out(words, "x") == "torchtitan"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("tensor_parallel_degree = 4", "tensor_parallel_degree = 3"), ("3", "32 devices")),
        (("local_batch_size = 4", "local_batch_size = 4\nglobal_batch_size = 100"), ("100", "96 or 112")),
        (("Interleaved1F1B", "Foo"), ("Foo", "1F1B")),
        (('mode = "full"', 'mode = "memory_budget"'), ("memory_budget", "selective")),
        (('mode = "full"', 'mode = "selective"\nselective_ac_option = "2"'), ("every n-th layer", "op")),
        (("seq_len = 8192", 'seq_len = "long"'), ("training.seq_len", "a number")),
        (("[training]", "[training"), ("TOML",)),
    ],
)
def test_what_is_wrong_is_said_with_numbers(change, words):
    with pytest.raises(BadInput) as caught:
        read_torchtitan(TOML.replace(*change), Beside(32, OF.model))
    assert all(word in caught.value.detail for word in words), caught.value.detail


def test_unknown_keys_are_listed():
    found = read_torchtitan(
        TOML.replace("tensor_parallel_degree", "tensor_paralel_degree"), Beside(32, OF.model)
    )
    assert any("tensor_paralel_degree" in each and "tensor_parallel_degree" in each for each in found.unknown)


@pytest.mark.parametrize(
    "stages", [(8, 8, 8, 8), (7, 9, 9, 7), (16, 16), (9, 9, 8, 6), (5, 5, 5, 5, 4, 4, 4)]
)
def test_cuts_that_two_numbers_give(stages):
    found = options_of(stages, len(stages), "1f1b")
    assert found is not None
    less = [found[f"pipeline_parallel_{end}_stage_less_layers"] for end in ("first", "last")]
    assert split(sum(stages), len(stages), *less) == stages


def test_other_cuts_are_named_layer_by_layer():
    assert options_of((4, 12, 4, 12), 4, "1f1b") is None
    plan = evaluate(OF, parse_strategy("pp=4,stages=4+12+4+12")).strategy
    export = write_torchtitan(PlannedRun(OF, plan))
    assert export.losses == ()
    script = export.files["train.sh"]
    assert "export STAGES=4+12+4+12" in script
    assert "--module planned_stages --config planned" in script
    registry = SimpleNamespace(llama3_8b=lambda: SimpleNamespace(parallelism=SimpleNamespace()))
    written: dict[str, Any] = {}
    exec(compile(export.files["planned_stages.py"], "planned_stages.py", "exec"), written)
    written["import_module"] = {"torchtitan.models.llama3.config_registry": registry}.__getitem__
    written["os"] = SimpleNamespace(
        environ={"MODULE": "llama3", "CONFIG": "llama3_8b", "STAGES": "4+12+4+12"}
    )
    parts = written["planned"]().parallelism.module_fqns_per_model_part
    assert [sum(name.startswith("layers.") for name in part) for part in parts] == [4, 12, 4, 12]
    assert (parts[0][0], parts[1][0], parts[-1][-1]) == ("tok_embeddings", "layers.4", "lm_head")
    with pytest.raises(BadInput, match="31 layers in 4 stages"):
        text = script.replace("STAGES=4+12+4+12", "STAGES=4+12+4+11")
        read_torchtitan(text, Beside(OF.cluster.num_devices, OF.model, {}))


def test_random_plans_come_back():
    rng, held = random.Random(5), 0
    for _ in range(40):
        of = situation(**{"engine.compile": rng.random() < 0.5})
        pp = rng.choice((1, 1, 2, 4))
        schedule = rng.choice(("1f1b", "interleaved", "gpipe", "zb-v")) if pp > 1 else "1f1b"
        vpp = 2 if schedule in ("interleaved", "zb-v") else 1
        words = f"tp={rng.choice((1, 2, 4))},cp={rng.choice((1, 2))},pp={pp},vpp={vpp},schedule={schedule}"
        words += f",mbs={rng.choice((1, 2))},recompute={rng.choice(('none', 'selective', 'full'))}"
        words += f",zero={rng.choice((2, 3))},dp_replicate={rng.choice((1, 2))},cp_kind=allgather"
        try:
            before = evaluate(of, parse_strategy(words))
        except IllegalStrategy:
            continue
        export = write_torchtitan(PlannedRun(of, before.strategy))
        assert export.losses == ()
        assert '"${MODULE:-llama3}" --config "${CONFIG:-llama3_8b}"' in export.files["train.sh"]
        held += 1
    assert held >= 8


def test_degrees_and_switches_where_older_versions_have_them():
    old = """
[training]
batch_size = 2
data_parallel_degree = -1
tensor_parallel_degree = 4
compile = true
[experimental]
pipeline_parallel_degree = 2
[activation_checkpoint]
mode = "none"
[float8]
enable_float8_linear = true
"""
    found = read_torchtitan(old, Beside(32, OF.model))
    strategy = found.strategy
    assert (strategy.tp, strategy.pp, strategy.dp_shard, strategy.dp_replicate) == (4, 2, 4, 1)
    assert (found.job.precision, found.job.options) == (Precision.FP8, {"engine.compile": True})
    assert found.unknown == ()
    with pytest.raises(BadInput, match="parallelism is"):
        read_torchtitan("[[parallelism]]\ntensor_parallel_degree = 2\n", Beside(32, OF.model))
