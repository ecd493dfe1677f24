"""The module of FSDP2 and DTensor: it reads back as the plan, and it trains."""

import json
import os
import random
import re
import subprocess
import sys

import pytest

from cost_models.errors import BadInput, IllegalStrategy
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import evaluate
from planner.formats.export import PlannedRun
from planner.formats.fsdp2.read import read_fsdp2
from planner.formats.fsdp2.write import write_fsdp2
from planner.formats.registry import find_out
from planner.formats.settings import Beside
from planner.request import CatalogModel, HuggingFaceModel, PresetCluster
from planner.situation import resolve

TINY = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 128,
}


def situation(model=None, cluster="dgx-h100", devices=16, seq_len=4096, global_batch=256, **options):
    options = {"engine.modules": "transformers"} | options
    job = JobRequest(seq_len=seq_len, global_batch=global_batch, engine="fsdp2", options=options)
    return resolve(
        model or CatalogModel(name="llama-3.1-8b"), PresetCluster(name=cluster, devices=devices), job
    )


def exported(of, strategy):
    return write_fsdp2(PlannedRun(of, evaluate(of, parse_strategy(strategy)).strategy))


def test_random_plans_come_back():
    rng, held = random.Random(7), 0
    for _ in range(40):
        of = situation(**{"engine.grad_dtype": rng.choice(("fp32", "bf16"))})
        words = f"tp={rng.choice((1, 2))},sp=false,mbs={rng.choice((1, 2))},zero={rng.choice((2, 3))}"
        words += f",dp_replicate={rng.choice((1, 2))},recompute={rng.choice(('none', 'full', 'full:5'))}"
        try:
            export = exported(of, words)
        except IllegalStrategy:
            continue
        assert export.losses == ()
        assert find_out(export.files["parallelize.py"], "x.py") == "fsdp2"
        compile(export.files["parallelize.py"], "parallelize.py", "exec")
        held += 1
    assert held >= 12


@pytest.mark.parametrize(
    ("strategy", "words"),
    [("cp=2", "context parallelism"), ("recompute=selective:mlp", "none, full or full:K")],
)
def test_what_the_module_does_not_do_is_refused(strategy, words):
    with pytest.raises(BadInput, match=words):
        exported(situation(), strategy)


def test_a_module_without_its_plan_is_refused():
    with pytest.raises(BadInput, match="PLAN"):
        read_fsdp2("import torch\n", Beside(8, situation().model))
    with pytest.raises(BadInput, match="cannot be read"):
        read_fsdp2("PLAN = {'tp': open('x')}\n", Beside(8, situation().model))


def losses_of(folder, processes, model):
    """Losses of two steps on so many processes."""
    words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    environment = os.environ | {"MODEL": str(model), "STEPS": "2", "OMP_NUM_THREADS": "1"}
    answer = subprocess.run(
        [sys.executable, *words, str(folder / "parallelize.py")],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-2000:]
    return [float(loss) for loss in re.findall(r"loss ([0-9.]+)", answer.stdout)]


@pytest.mark.matrix
def test_the_module_trains_and_resharding_changes_nothing(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    found = {}
    # Rank 0 prints its own loss; data-parallel rank 0 sees the same tokens in both layouts.
    for name, strategy in {
        "whole": "zero=3",
        "kept": "zero=2,recompute=full",
        "replicas": "dp_replicate=2",
    }.items():
        of = situation(HuggingFaceModel(config=TINY), "cpu", 4, seq_len=32, global_batch=8)
        export = exported(of, strategy)
        export.write(tmp_path / name)
        found[name] = losses_of(tmp_path / name, 4, tmp_path)
    assert len(found["whole"]) == 2
    assert found["kept"] == pytest.approx(found["whole"], abs=2e-3)
