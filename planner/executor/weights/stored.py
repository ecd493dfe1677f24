"""A folder with config.json and safetensors files: what it holds, from headers alone. Needs no torch."""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cost_models.errors import BadInput
from cost_models.readers import read_model
from cost_models.specs.model import ModelSpec
from cost_models.strict_json import parse_config

CONFIG_FILE: Final = "config.json"
SINGLE_FILE: Final = "model.safetensors"
INDEX_FILE: Final = "model.safetensors.index.json"
MAX_HEADER_BYTES: Final = 100_000_000
"""The format's own limit (safetensors, format description)."""

ITEM_BYTES: Final[Mapping[str, int]] = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2}
"""Element types that are read, and their bytes; parameters are kept in fp32 whatever the file has."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor of a file."""

    file: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Its bytes in the file."""
        return math.prod(self.shape) * ITEM_BYTES.get(self.dtype, 1)


@dataclass(frozen=True, slots=True)
class Directory:
    """A model's folder: its config and, where there are any, the tensors of its files."""

    path: Path
    config: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor] = field(default_factory=dict)

    @property
    def model(self) -> ModelSpec:
        """The model that the config describes."""
        return read_model(dict(self.config), name=self.path.resolve().name)

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.num_bytes for tensor in self.tensors.values())


def read_directory(path: Path) -> Directory:
    """The folder's config and headers; raises BadInput where one is missing or broken, or the weights are quantized."""
    if not path.is_dir():
        raise BadInput(
            f"--weights {str(path)[:200]!r} is no folder; give one with {CONFIG_FILE} and safetensors files"
        )
    config = read_config(path)
    quantization = config.get("quantization_config")
    if quantization:
        method = quantization.get("quant_method") if isinstance(quantization, dict) else quantization
        raise BadInput(
            f"{str(path)[:200]!r} holds quantized weights ({str(method)[:40]}), which are not trained; give the "
            "model in bf16 or fp32"
        )
    tensors: dict[str, StoredTensor] = {}
    for file in weight_files(path):
        tensors |= read_header(path / file)
    return Directory(path, config, tensors)


def read_config(path: Path) -> dict[str, Any]:
    """The folder's config; raises BadInput where there is none."""
    return _json(path / CONFIG_FILE)


def stated_dtype(config: Mapping[str, Any]) -> str:
    """Element type that a config states, in transformers' words; float32 where it says nothing."""
    stated = config.get("dtype") or config.get("torch_dtype")
    return str(stated).removeprefix("torch.") if stated else "float32"


def has_weights(path: str) -> bool:
    """Whether a folder is named and holds safetensors files; with config.json alone weights come from the seed."""
    return bool(path) and any((Path(path) / name).exists() for name in (SINGLE_FILE, INDEX_FILE))


def weight_files(path: Path) -> tuple[str, ...]:
    """Names of the files that the index names, or the single one; none where the folder has a config alone.

    Raises BadInput for files that are missing, that no index names, or for weights in another format.
    """
    if (path / INDEX_FILE).exists():
        table = _json(path / INDEX_FILE).get("weight_map")
        if not isinstance(table, dict) or not all(isinstance(name, str) for name in table.values()):
            raise BadInput(f"{INDEX_FILE} has no weight_map from tensors to files; write it anew")
        files = tuple(sorted(set(table.values())))
        missing = [name for name in files if Path(name).name != name or not (path / name).is_file()]
        if missing:
            raise BadInput(
                f"{len(missing)} of {len(files)} files of {INDEX_FILE} are not there, first {missing[0][:100]!r}; "
                "fetch them"
            )
        return files
    if (path / SINGLE_FILE).exists():
        return (SINGLE_FILE,)
    others = sorted(
        each.name for suffix in ("safetensors", "bin", "pt", "pth") for each in path.glob(f"*.{suffix}")
    )
    if others:
        raise BadInput(
            f"{str(path)[:200]!r} holds {others[0][:100]!r} but neither {SINGLE_FILE} nor {INDEX_FILE}; save the model "
            "with save_pretrained"
        )
    return ()


def read_header(path: Path) -> dict[str, StoredTensor]:
    """The tensors of one file by name; raises BadInput where it is no whole safetensors file."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            first = file.read(8)
            length = struct.unpack("<Q", first)[0] if len(first) == 8 else MAX_HEADER_BYTES + 1
            if length > min(MAX_HEADER_BYTES, size):
                raise BadInput(f"{path.name[:100]} is no safetensors file ({size:,} bytes); fetch it again")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        found = {
            key: StoredTensor(path.name, str(entry["dtype"]), tuple(int(n) for n in entry["shape"]))
            for key, entry in header.items()
        }
        end = 8 + length + max((int(entry["data_offsets"][1]) for entry in header.values()), default=0)
    except OSError as error:
        raise BadInput(f"{str(path)[:200]!r} cannot be read ({error.strerror}); check its rights") from None
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        raise BadInput(f"{path.name[:100]} has a broken safetensors header; fetch it again") from None
    if end != size:
        raise BadInput(f"{path.name[:100]} has {size:,} bytes and its header says {end:,}; fetch it again")
    return found


def _json(path: Path) -> dict[str, Any]:
    try:
        found = parse_config(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(
            f"{str(path)[:200]!r} cannot be read ({error.strerror}); --weights takes a folder with {CONFIG_FILE}, and "
            "safetensors files beside it"
        ) from None
    except ValueError as error:
        raise BadInput(f"{path.name} is no JSON ({str(error)[:150]}); write it anew") from None
    if not isinstance(found, dict):
        raise BadInput(f"{path.name} is no JSON object; write it anew")
    return found
