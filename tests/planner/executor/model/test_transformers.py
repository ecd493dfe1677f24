"""The built models compute what the transformers library computes with the same weights."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from cost_models.readers import read_model
from planner.executor.model.build import build_chunk, whole
from planner.executor.model.options import GIVEN, BuildOptions
from planner.executor.model.support import unsupported_operators
from planner.executor.weights.names import naming_of
from planner.executor.weights.stored import read_directory
from tests.planner.executor.model.configs import CASES, RESNET, UNUSUAL, VARIANTS
from tests.planner.executor.model.library import chunk_of, library_model

transformers = pytest.importorskip("transformers")

TOLERANCE = 1e-5
POSITIONS = 32


UNFUSED = ("llama", "mistral window", "gpt2", "bloom", "bert")


@pytest.mark.parametrize(
    ("case", "attention"),
    [*((case, "flash") for case in (*CASES, *VARIANTS)), *((case, "unfused") for case in UNFUSED)],
)
def test_logits_are_the_librarys(case: str, attention: str, tmp_path: Path) -> None:
    config = (CASES | VARIANTS)[case]
    library = library_model(config, seed=len(case))
    library.save_pretrained(tmp_path, max_shard_size="50KB")
    chunk, reader = chunk_of(tmp_path, BuildOptions(values=GIVEN, attention=attention))
    ids = torch.randint(3, config["vocab_size"], (2, POSITIONS))
    found, expected = chunk(ids), library(ids).logits
    assert (found - expected).abs().max() < TOLERANCE
    assert expected.abs().max() > 1.0  # far above the tolerance
    assert sum(p.numel() for p in chunk.parameters()) == sum(p.numel() for p in library.parameters())
    assert reader.read_bytes >= read_directory(tmp_path).num_bytes


@pytest.mark.parametrize("case", UNUSUAL)
def test_what_is_computed_otherwise_is_refused(case: str) -> None:
    config, words = UNUSUAL[case]
    assert words in " ".join(unsupported_operators(read_model(config, name="tiny")))


def test_gradients_are_the_librarys(tmp_path: Path) -> None:
    library = library_model(CASES["qwen3"], seed=1)
    library.save_pretrained(tmp_path)
    chunk, _ = chunk_of(tmp_path)
    ids = torch.randint(3, 64, (2, POSITIONS))
    targets = torch.randint(64, (2, POSITIONS))
    chunk(ids, targets).backward()
    flat = library(ids).logits.flatten(0, 1)
    nn.functional.cross_entropy(flat, targets.flatten(), reduction="sum").backward()
    expected = dict(library.named_parameters())
    naming = naming_of(read_directory(tmp_path).model)
    for name, parameter in chunk.named_parameters():
        source = naming.source(name, tuple(parameter.shape))
        # Every parameter of this family is one tensor of the files.
        gradient = _grad(expected[source.key])
        assert (_grad(parameter) - gradient).abs().max() / gradient.abs().max() < TOLERANCE, name


def _grad(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def test_resnet_computes_what_the_librarys_does() -> None:
    kwargs = {key: value for key, value in RESNET.items() if key not in ("model_type", "image_size")}
    torch.manual_seed(0)
    library = transformers.ResNetForImageClassification(transformers.ResNetConfig(**kwargs)).train()
    model = read_model(RESNET, name="resnet")
    chunk = build_chunk(model, whole(model), BuildOptions())
    ours, theirs = dict(chunk.named_parameters()), list(library.parameters())
    assert len(ours) == len(theirs)
    state = library.state_dict()
    with torch.no_grad():
        for name, parameter in ours.items():
            parameter.copy_(state[_resnet_key(name)])
    images = torch.randn(2, 3, 32, 32)
    assert (chunk(images) - library(images).logits).abs().max() < TOLERANCE


def _resnet_key(name: str) -> str:
    """Blocks 1 and 2 are the library's first stage, block 3 its second (depths 2 and 1)."""
    _, index, operator, parameter = name.split(".")
    if operator == "classifier":
        return f"classifier.1.{parameter}"
    base = operator.removesuffix("_norm")
    part = f"{'normalization' if operator.endswith('_norm') else 'convolution'}.{parameter}"
    if base == "stem":
        return f"resnet.embedder.embedder.{part}"
    stage, block = {1: (0, 0), 2: (0, 1), 3: (1, 0)}[int(index)]
    place = "shortcut" if base == "shortcut" else f"layer.{base.removeprefix('conv')}"
    return f"resnet.encoder.stages.{stage}.layers.{block}.{place}.{part}"
