"""The transformers library's models with random weights, and their weights in a built chunk, through files."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from planner.executor.data_parallel.held import persistent_buffers
from planner.executor.model.build import build_chunk, whole
from planner.executor.model.chunk import ChunkModule
from planner.executor.model.options import GIVEN, BuildOptions
from planner.executor.weights.loading import BoxReader
from planner.executor.weights.match import match
from planner.executor.weights.stored import Directory, read_directory
from tests.planner.executor.model.configs import Config

SCALE = 0.1


def library_model(config: Config, seed: int) -> Any:
    """The library's model with random weights, norms, biases and routers' corrections included."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(seed)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    kind = config["model_type"]
    made = transformers.AutoConfig.for_model(kind, **{k: v for k, v in config.items() if k != "model_type"})
    auto = transformers.AutoModelForMaskedLM if kind == "bert" else transformers.AutoModelForCausalLM
    module = auto.from_config(made, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in module.parameters():
            # Weights around zero; what is added to or multiplies the stream around its first value.
            noise = torch.randn_like(parameter) * SCALE
            parameter.copy_(noise if parameter.dim() > 1 else parameter + noise)
        for name, buffer in module.named_buffers():
            if name.endswith("correction_bias"):
                buffer.copy_(torch.randn_like(buffer) * SCALE)
    return module


def load_model_of(path: Path) -> Any:
    """The library's model of a folder."""
    transformers = pytest.importorskip("transformers")
    transformers.logging.disable_progress_bar()
    config = transformers.AutoConfig.from_pretrained(path)
    auto = (
        transformers.AutoModelForMaskedLM
        if config.model_type == "bert"
        else transformers.AutoModelForCausalLM
    )
    return auto.from_pretrained(path, attn_implementation="eager", dtype=torch.float32).eval()


def chunk_of(path: Path, options: BuildOptions | None = None) -> tuple[ChunkModule, BoxReader]:
    """The whole model built and filled from a folder."""
    directory = read_directory(path)
    model = directory.model
    chunk = build_chunk(model, whole(model), options or BuildOptions(values=GIVEN))
    reader = BoxReader(directory)
    naming = match(directory, model, predictions=False).naming
    with torch.no_grad():
        for name, tensor in tensors_of(chunk).items():
            reader.fill(naming.source(name, tuple(tensor.shape)), (0,) * tensor.dim(), tensor)
    return chunk, reader


def tensors_of(chunk: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name."""
    return {**dict(chunk.named_parameters()), **persistent_buffers([chunk])}


def stored_values(directory: Directory) -> dict[str, Tensor]:
    """All tensors of a folder."""
    from safetensors import safe_open

    found: dict[str, Tensor] = {}
    for key, tensor in directory.tensors.items():
        with safe_open(str(directory.path / tensor.file), framework="pt") as file:
            found[key] = file.get_tensor(key)
    return found
