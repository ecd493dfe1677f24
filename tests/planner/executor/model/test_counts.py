"""Parameters of built models are those that the cost model counts, name by name and in all."""

import pytest

from cost_models.errors import BadInput
from cost_models.readers import read_model
from cost_models.readers.sources import load_model
from cost_models.specs.counts import count_parameters
from cost_models.specs.model import ModelSpec
from planner.executor.model.build import build_chunk, whole
from planner.executor.model.options import BuildOptions, ChunkCut
from planner.executor.model.support import unsupported_operators
from tests.planner.executor.model.configs import CASES, RESNET

CATALOG = (
    "bert-base",
    "bloom-176b",
    "dbrx-132b",
    "deepseek-v3",
    "falcon-180b",
    "gemma-2-27b",
    "gemma-3-1b",
    "glm-4.5-air-106b-a12b",
    "gpt-neox-20b",
    "gpt-oss-120b",
    "gpt2",
    "llama-3.1-8b",
    "minimax-m2.5",
    "mixtral-8x7b",
    "olmo-2-7b",
    "qwen1.5-moe-a2.7b",
    "qwen3-0.6b",
    "resnet-50",
)


def _elements(model: ModelSpec, cut: ChunkCut) -> int:
    return sum(p.numel() for p in build_chunk(model, cut, BuildOptions(device="meta")).parameters())


@pytest.mark.parametrize("name", CATALOG)
def test_catalog_models_have_the_counted_parameters(name: str) -> None:
    model = load_model(name)
    assert _elements(model, whole(model)) == count_parameters(model).parameters


@pytest.mark.parametrize("case", [*CASES, "resnet"])
def test_tiny_models_have_the_counted_parameters(case: str) -> None:
    model = read_model(CASES.get(case, RESNET), name=case)
    assert _elements(model, whole(model)) == count_parameters(model).parameters


def test_chunks_add_up_and_a_tied_table_stands_on_both_ends() -> None:
    model = load_model("gpt2")
    parts = [ChunkCut(True, False, 0, 5), ChunkCut(False, True, 5, 12)]
    # The table of 50,257 x 768 is stored on the first and the last chunk.
    table = 50257 * 768
    assert sum(_elements(model, part) for part in parts) == 124_439_808 + table


def test_names_do_not_depend_on_the_cut() -> None:
    model = load_model("qwen3-0.6b")
    options = BuildOptions(device="meta")
    every = dict(build_chunk(model, whole(model), options).named_parameters())
    part = dict(build_chunk(model, ChunkCut(False, True, 20, 28), options).named_parameters())
    # The whole names its one table after the embedding; the last chunk has the head's copy of it.
    assert set(part) - set(every) == {"layers.29.logits.weight"}
    assert part["layers.29.logits.weight"].tie_name == every["layers.0.embedding.table"].tie_name


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("t5-3b", "several stacks (encoder, decoder)"),
        ("nemotron-h-8b", "causal_conv"),
        ("phi-3.5-mini", "rotary scaling longrope"),
    ],
)
def test_what_cannot_be_built_is_refused_by_name(name: str, what: str) -> None:
    model = load_model(name)
    assert what in unsupported_operators(model)
    with pytest.raises(BadInput, match="does not build"):
        build_chunk(model, whole(model), BuildOptions(device="meta"))


def test_a_setting_that_no_module_follows_is_refused() -> None:
    model = read_model(CASES["llama"], name="llama")
    odd = model.model_copy(update={"semantics": {**model.semantics, "curvature": 2.0}})
    assert unsupported_operators(odd) == ("setting curvature",)
