"""A thousand random plans a format are written and mean the same when they are read back."""

import pytest

from cost_models.errors import BadInput
from planner.formats.registry import FORMATS, find_out, write_settings
from tests.frameworks.plans import random_runs, situation

ENGINES = {
    "megatron": "megatron",
    "bridge": "megatron",
    "nemo": "megatron",
    "torchtitan": "torchtitan",
    "deepspeed": "deepspeed",
    "accelerate": "fsdp2",
    "fsdp2": "fsdp2",
}
MODELS = {
    "megatron": ("llama-3.1-8b", "gpt2-large", "qwen3-30b-a3b", "mixtral-8x7b"),
    "torchtitan": ("llama-3.1-8b", "llama-3.1-70b", "qwen3-30b-a3b", "deepseek-v2-lite"),
}
DEFAULT_MODELS = ("llama-3.1-8b", "qwen2.5-7b", "llama-3.2-1b", "mistral-7b-v0.1")
NUMBER = 1000
UNSAID = {"torchtitan": "cp_kind=ring"}
"""What a format has no word for, and lists as a loss."""


def test_every_written_format_is_tried():
    assert set(ENGINES) == {name for name, each in FORMATS.items() if each.write}


@pytest.mark.matrix
@pytest.mark.parametrize("form", ENGINES)
def test_a_thousand_plans_come_back(form):
    engine = ENGINES[form]
    models = MODELS.get(engine, DEFAULT_MODELS)
    options = {} if engine in ("megatron", "torchtitan") else {"engine.modules": "transformers"}
    each = NUMBER // len(models)
    for index, model in enumerate(models):
        of = situation(model, engine, **options)
        held = 0
        for run in random_runs(of, 1000 + index, 3 * each):
            if held == each:
                break
            try:
                export = write_settings(run, form)
            except BadInput:
                continue  # stages that the framework's options cannot cut, said by name
            assert not [loss for loss in export.losses if not loss.startswith(UNSAID.get(form, "?"))]
            assert form in {_form(text) for text in export.files.values()}
            held += 1
        assert held == each, model


def _form(text):
    """The format that a file looks like; none for scripts that only train."""
    try:
        return find_out(text, "file")
    except BadInput:
        return None
