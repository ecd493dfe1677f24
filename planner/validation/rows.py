"""Rows of a table of measured runs: typed access to what a source states, and nothing guessed."""

import csv
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cost_models.errors import BadInput
from cost_models.profiles import profiles_root
from cost_models.units import GIB

NEEDED: Final = ("id", "gpu", "n_gpus", "framework", "precision", "micro_batch", "global_batch")
"""Columns without which no row can be predicted."""

RESERVED_BESIDE: Final = re.compile(r"reserved ([0-9]+(?:\.[0-9]+)?) GiB")

MAX_FILE_BYTES: Final = 64 * 1024**2
GB: Final = 1e9


class Unusable(Exception):
    """A row that cannot be predicted; the text says why, for `skipped`."""


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run: the cells of its row, empty ones left out, and the folder that its model file is in.

    `arguments` are the framework's own, where the source gives them instead of columns.
    """

    cells: Mapping[str, str]
    folder: Path
    arguments: Mapping[str, str] | None = None

    @property
    def id(self) -> str:
        """Name of the row."""
        return self.text("id")

    @property
    def source(self) -> str:
        """Prefix of the name: which public document the row is from."""
        return self.id.rpartition("-")[0] or self.id

    @property
    def is_core(self) -> bool:
        """Whether the row is one of the cleanest."""
        return self.text("core") == "yes"

    @property
    def is_dense(self) -> bool:
        """Whether the model is a plain transformer."""
        return self.text("kind", "dense") == "dense"

    @property
    def out_of_memory(self) -> bool:
        """Whether the run failed for lack of memory."""
        return self.text("oom") == "true"

    def text(self, column: str, default: str = "") -> str:
        """The cell, or the default where it is empty or absent."""
        return self.cells.get(column, default)

    def whole(self, column: str, default: int | None = None) -> int:
        """A whole number of at least 1; raises Unusable where there is none and no default."""
        text = self.text(column)
        if not text and default is not None:
            return default
        try:
            value = int(float(text))
        except (ValueError, OverflowError):
            raise Unusable(f"{column} is {text[:40]!r}, not a whole number") from None
        if value < 1:
            raise Unusable(f"{column} is {value}, less than 1")
        return value

    def number(self, column: str) -> float | None:
        """A positive finite number, or None."""
        try:
            value = float(self.text(column))
        except ValueError:
            return None
        return value if math.isfinite(value) and value > 0 else None

    @property
    def step_s(self) -> float | None:
        """Measured seconds of an optimizer step: printed, else derived from printed tokens/s, TFLOPs or MFU."""
        printed = self.number("step_time_s")
        return printed if printed is not None else self.number("derived_step_time_s")

    @property
    def counter(self) -> str | None:
        """What the memory figure counts: allocated, reserved, device_used; None where there is none."""
        kind = self.text("memory_kind").lower()
        if self.number("peak_memory_gib") is None:
            return None
        if "nvidia-smi" in kind:
            return "device_used"
        return "reserved" if kind.startswith("max reserved") or kind.startswith("reserved") else "allocated"

    @property
    def memory_rank(self) -> str:
        """Which rank the figure is of: `max` over all, `last`, `ends` (the larger of first and last node), or
        `first_node` (what nvidia-smi shows where a run of several nodes was started).

        Bridge prints a line for every pipeline stage; what its sources quote grows with the number of virtual stages
        (58.8 to 60.2 GB from 5 to 10), which of all stages only the last one's activations do.
        """
        kind = self.text("memory_kind").lower()
        if "last rank" in kind or (self.stages > 1 and "Megatron-Bridge" in self.text("framework")):
            return "last"
        if "first or last node" in kind:
            return "ends"
        return "first_node" if "nvidia-smi" in kind and self.stages > self.first_node_stages else "max"

    @property
    def stages(self) -> int:
        """Pipeline stages, 1 where none are stated."""
        return self.whole("pp", 1)

    @property
    def first_node_stages(self) -> int:
        """Pipeline stages with a rank on the first node: a stage's ranks follow each other."""
        ranks = max(self.whole("n_gpus", 1) // self.stages, 1)
        return min(max(self.whole("gpus_per_node", 8) // ranks, 1), self.stages)

    @property
    def memory_bytes(self) -> float | None:
        """Measured peak in bytes. A printed GB is decimal, except nvidia-smi's, which counts MiB."""
        value, kind = self.number("peak_memory_gib"), self.text("memory_kind")
        if value is None:
            return None
        decimal = "GB" in kind and "nvidia-smi" not in kind
        return value * (GB if decimal else GIB)

    @property
    def reserved_bytes(self) -> float | None:
        """What the allocator held, where the source prints it beside the allocated peak."""
        found = RESERVED_BESIDE.search(self.text("memory_kind"))
        return float(found[1]) * GIB if found and self.counter == "allocated" else None

    def model_file(self) -> Mapping[str, object]:
        """The architecture the row names, beside the table or among the published ones; raises Unusable."""
        name = self.text("model_json")
        if not name:
            raise Unusable("the row names no architecture (model_json is empty)")
        for folder in (self.folder, profiles_root() / "published"):
            path = folder / name
            if path.is_file() and path.resolve().is_relative_to(folder.resolve()):
                return _json_object(path)
        raise Unusable(
            f"architecture file {name[:80]} is neither beside the table nor among the published ones"
        )


def read_runs(path: Path) -> tuple[Run, ...]:
    """All rows of a CSV table; raises BadInput where it is not one."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise BadInput(f"runs {path} exceed {MAX_FILE_BYTES:,} bytes; split the table")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"runs {path} cannot be read ({error}); give a CSV file in UTF-8") from error
    reader = csv.DictReader(text.splitlines(keepends=True))
    try:
        rows = list(reader)
    except csv.Error as error:
        raise BadInput(f"runs {path} are no CSV table ({error}); correct line {reader.line_num}") from error
    missing = [column for column in NEEDED if column not in (reader.fieldnames or ())]
    if missing:
        raise BadInput(f"runs {path} lack the columns {', '.join(missing)}; see profiles/published/README.md")
    return tuple(Run(_filled(row), path.parent) for row in rows)


def _filled(row: Mapping[str, str | list[str] | None]) -> dict[str, str]:
    return {
        key: value.strip() for key, value in row.items() if isinstance(value, str) and key and value.strip()
    }


def _json_object(path: Path) -> Mapping[str, object]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Unusable(f"architecture file {path.name} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise Unusable(f"architecture file {path.name} holds no JSON object")
    return data
