"""The built models compute what the transformers library computes with the same weights."""

import pytest
import torch
from torch import Tensor, nn

from cost_models.readers import read_model
from planner.executor.model.build import build_chunk, whole
from planner.executor.model.hf_names import hf_sources
from planner.executor.model.options import BuildOptions
from tests.planner.executor.model.configs import CASES, RESNET, Config

transformers = pytest.importorskip("transformers")

TOLERANCE = 1e-5
SCALE = 0.1
POSITIONS = 32


def _library(config: Config, seed: int) -> nn.Module:
    """The library's model with random weights, norms and biases included."""
    torch.manual_seed(seed)
    transformers.logging.set_verbosity_error()
    kind = config["model_type"]
    made = transformers.AutoConfig.for_model(kind, **{k: v for k, v in config.items() if k != "model_type"})
    auto = transformers.AutoModelForMaskedLM if kind == "bert" else transformers.AutoModelForCausalLM
    module = auto.from_config(made, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in module.parameters():
            # Weights around zero; what is added to or multiplies the stream around its first value.
            noise = torch.randn_like(parameter) * SCALE
            parameter.copy_(noise if parameter.dim() > 1 else parameter + noise)
    return module


def _copied(config: Config, library: nn.Module, options: BuildOptions) -> nn.Module:
    model = read_model(library.config.to_dict(), name=str(config["model_type"]))
    chunk = build_chunk(model, whole(model), options)
    named = dict(chunk.named_parameters())
    state = library.state_dict()
    with torch.no_grad():
        for name, source in hf_sources(model, named).items():
            named[name].copy_(source.cut(state[source.key]))
    assert sum(p.numel() for p in named.values()) == sum(p.numel() for p in library.parameters())
    return chunk


UNFUSED = ("llama", "mistral window", "gpt2", "bloom", "bert")


@pytest.mark.parametrize(
    ("case", "attention"), [*((case, "flash") for case in CASES), *((case, "unfused") for case in UNFUSED)]
)
def test_logits_are_the_librarys(case: str, attention: str) -> None:
    config = CASES[case]
    library = _library(config, seed=len(case))
    chunk = _copied(config, library, BuildOptions(attention=attention))
    ids = torch.randint(3, config["vocab_size"], (2, POSITIONS))
    found, expected = chunk(ids), library(ids).logits
    assert (found - expected).abs().max() < TOLERANCE
    assert expected.abs().max() > 1.0  # far above the tolerance


def test_gradients_are_the_librarys() -> None:
    config = CASES["qwen3"]
    library = _library(config, seed=1)
    chunk = _copied(config, library, BuildOptions())
    ids = torch.randint(3, 64, (2, POSITIONS))
    targets = torch.randint(64, (2, POSITIONS))
    chunk(ids, targets).backward()
    flat = library(ids).logits.flatten(0, 1)
    nn.functional.cross_entropy(flat, targets.flatten(), reduction="sum").backward()
    expected = dict(library.named_parameters())
    model = read_model(library.config.to_dict(), name="qwen3")
    for name, source in hf_sources(model, dict(chunk.named_parameters())).items():
        gradient = source.cut(_grad(expected[source.key]))
        own = _grad(chunk.get_parameter(name))
        assert (own - gradient).abs().max() / gradient.abs().max() < TOLERANCE, name


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
