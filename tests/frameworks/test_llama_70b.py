"""The plan for Llama-3.1-70B on 64 H100 in every format: its framework takes it, and it is predicted the same again."""

import json

import pytest

from cost_models.specs.job import JobRequest
from planner.evaluation import evaluate
from planner.formats.export import PlannedRun
from planner.formats.registry import FORMATS, read_settings, write_settings
from planner.formats.settings import Beside
from planner.make_plan import make_plan
from planner.request import CatalogModel, PresetCluster, SearchRequest
from planner.situation import resolve, situate
from tests.frameworks.ask import ask
from tests.frameworks.test_frameworks import bridge_case, megatron_case, titan_case

pytestmark = pytest.mark.frameworks

LIBRARY = {"engine.modules": "transformers"}
"""DeepSpeed, Accelerate and FSDP2 exports train transformers' own modules."""

WALKS = [
    ("megatron", {}, {}, "megatron"),
    ("megatron", {}, {}, "bridge"),
    ("megatron", {}, {}, "nemo"),
    ("torchtitan", {}, {}, "torchtitan"),
    ("deepspeed", LIBRARY, {"pp": 1, "recompute": "full"}, "deepspeed"),
    ("deepspeed", LIBRARY, {"pp": 1, "recompute": "full"}, "accelerate"),
    ("fsdp2", LIBRARY, {}, "accelerate"),
    ("fsdp2", LIBRARY, {}, "fsdp2"),
]


def test_every_written_format_is_walked():
    assert {form for *_, form in WALKS} == {name for name, each in FORMATS.items() if each.write}


@pytest.mark.parametrize(("engine", "options", "pins", "form"), WALKS)
def test_the_plan_in_every_format(engine, options, pins, form):
    job = JobRequest(seq_len=8192, global_batch=512, engine=engine, options=options)
    of = resolve(CatalogModel(name="llama-3.1-70b"), PresetCluster(name="dgx-h100", devices=64), job)
    best = make_plan(of, SearchRequest(pins=pins)).best
    run = PlannedRun(of, best.strategy)
    export = write_settings(run, form)
    assert export.losses == ()
    case = CASES.get(form)
    if case:
        framework, make = case
        (verdict,) = ask(framework, [make(run, export.files)])
        assert verdict["ok"], verdict
    again = predicted_again(of, best.strategy, export, form)
    assert again.step_s == best.step_s
    assert again.memory.device_used_bytes == best.memory.device_used_bytes


def predicted_again(of, plan, export, form):
    """What the settings alone mean; what stands in the Trainer's arguments comes from the plan."""
    library = {key: value for key, value in of.job_request.options.items() if key in LIBRARY}
    batch = {"seq_len": of.job_request.seq_len, "global_batch": of.job.global_batch}
    beside = Beside(of.cluster.num_devices, of.model, batch)
    name = CONFIGS.get(form, export.script)
    settings = read_settings(export.files[name], form, beside)
    elsewhere = {"mbs": plan.mbs, "recompute": plan.recompute.text()} if form in CONFIGS else {}
    model = of.model if form in CONFIGS else settings.model
    job = settings.job.model_copy(update={"options": library | dict(settings.job.options)})
    return evaluate(situate(model, of.cluster, job), settings.strategy.model_copy(update=elsewhere))


CONFIGS = {"deepspeed": "ds_config.json", "accelerate": "accelerate.yaml", "fsdp2": "parallelize.py"}


def deepspeed_case(run, files):
    """The JSON and the Trainer's arguments."""
    texts = [json.loads(files[name]) for name in ("ds_config.json", "training_arguments.json")]
    return {"world": run.strategy.dp * run.strategy.cp, "config": texts[0], "arguments": texts[1]}


CASES = {
    "megatron": ("megatron", lambda run, files: megatron_case(run)),
    "bridge": ("bridge", lambda run, files: bridge_case(run)),
    "torchtitan": ("torchtitan", lambda run, files: titan_case(run)),
    "deepspeed": ("deepspeed", deepspeed_case),
    "accelerate": ("accelerate", lambda run, files: {"world": 64, "text": files["accelerate.yaml"]}),
}
"""Frameworks that can be asked here: NeMo knows no names of parallelism before it is installed, FSDP2 is torch."""
