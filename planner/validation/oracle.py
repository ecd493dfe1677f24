"""Configs whose models were built and counted: what a reader must say of each, and where it says something else.

The rows lie in tests/data/oracle.jsonl.gz of a checkout; each names the config, the counts and the layers by stack.
"""

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from cost_models.profiles import profiles_root
from cost_models.specs.counts import count_parameters, layer_parameters
from cost_models.specs.model import ModelSpec, Role

MERGER = "merger"
"""Kind of connector that the library keeps in a list of its own, like a stack (Qwen3-VL)."""


@dataclass(frozen=True, slots=True)
class BuiltStack:
    """A list of layers of a built model: (parameters, equal layers in a row), and the same by kind where known."""

    path: str
    layers: tuple[tuple[int, int], ...]
    kinds: tuple[tuple[int, int], ...] = ()

    @property
    def kind_of_layer(self) -> tuple[int, ...]:
        """The kind of every layer in order; empty where it was not looked at."""
        return tuple(kind for kind, count in self.kinds for _ in range(count))


@dataclass(frozen=True, slots=True)
class OracleRow:
    """One counted config; None where the model was not looked at. `suspect` says why its file is not what it seems."""

    name: str
    form: str
    config: Mapping[str, Any]
    parameters: int
    active: int | None
    embedding: int | None
    stacks: tuple[BuiltStack, ...]
    staged: bool = False
    suspect: str = ""

    @property
    def model_type(self) -> str:
        """The config's family, or its class where it states no family."""
        return str(self.config.get("model_type") or self.config["architectures"][0])


def oracle_file() -> Path:
    """The rows' file in this checkout."""
    return profiles_root().parent / "tests" / "data" / "oracle.jsonl.gz"


def oracle_rows(path: Path | None = None) -> tuple[OracleRow, ...]:
    """Every row, in the order of the file (whose first line says where the rows come from)."""
    with gzip.open(path or oracle_file(), "rt", encoding="utf-8") as lines:
        next(lines)
        return tuple(_row(json.loads(line)) for line in lines)


def _row(raw: Mapping[str, Any]) -> OracleRow:
    return OracleRow(**{**raw, "stacks": tuple(_stack(each) for each in raw["stacks"])})


def _stack(raw: Mapping[str, Any]) -> BuiltStack:
    layers, kinds = raw["layers"], raw.get("kinds", ())
    return BuiltStack(raw["path"], tuple(map(tuple, layers)), tuple(map(tuple, kinds)))


def differences(row: OracleRow, model: ModelSpec) -> tuple[str, ...]:
    """Where the model read differs from the model built; empty where it is exact in everything that was counted."""
    counts = count_parameters(model)
    pairs = (
        ("parameters", counts.parameters, row.parameters),
        ("active", counts.active, row.active),
        ("embedding", counts.embedding, row.embedding),
    )
    found = [
        f"{what} {read:,} but {built:,}" for what, read, built in pairs if built is not None and read != built
    ]
    built_layers = sorted(stack.layers for stack in row.stacks)
    read_layers = sorted([_stage_sums(model)] if row.staged else _layers(model))
    if read_layers != built_layers:
        found.append(f"layers {str(read_layers)[:200]} but {str(built_layers)[:200]}")
    elif not row.staged:
        found += _mixed_kinds(row, model)
    return tuple(found)


def _stacks(model: ModelSpec) -> dict[str, list[tuple[int, str]]]:
    """(Parameters, kind) of every block of each stack."""
    found: dict[str, list[tuple[int, str]]] = {}
    for layer in model.layers:
        if layer.role is Role.BLOCK or layer.kind == MERGER:
            each = (layer_parameters(model.kinds[layer.kind]), layer.kind)
            found.setdefault(layer.stack, []).extend([each] * layer.count)
    return found


def _runs(sizes: Iterable[int]) -> tuple[tuple[int, int], ...]:
    return tuple((size, len(list(same))) for size, same in groupby(sizes))


def _layers(model: ModelSpec) -> list[tuple[tuple[int, int], ...]]:
    return [_runs(size for size, _ in stack) for stack in _stacks(model).values()]


def _stage_sums(model: ModelSpec) -> tuple[tuple[int, int], ...]:
    """Parameters of each stage of an image model, by the first word of its kinds."""
    sums: dict[str, int] = {}
    for stack in _stacks(model).values():
        for size, kind in stack:
            stage = kind.split("_")[0]
            sums[stage] = sums.get(stage, 0) + size
    return _runs(sums.values())


def _mixed_kinds(row: OracleRow, model: ModelSpec) -> list[str]:
    """Stacks in which layers of different built kinds have one kind here; a finer division is no difference."""
    read = [[kind for _, kind in stack] for stack in _stacks(model).values()]
    found = []
    for stack in row.stacks:
        built = stack.kind_of_layer
        alike = [kinds for kinds in read if len(kinds) == len(built)]
        if built and not any(_divides(kinds, built) for kinds in alike):
            found.append(f"layers of {stack.path or 'the stack'} that differ have one kind")
    return found


def _divides(kinds: Sequence[str], built: Sequence[int]) -> bool:
    """Whether every kind here belongs to one built kind."""
    return len(set(zip(kinds, built, strict=True))) == len(set(kinds))
