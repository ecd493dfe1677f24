"""Megatron-Core's own test runs: their exact arguments, the last rank's peak, the median step."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cost_models.errors import BadInput
from cost_models.strict_json import parse_json
from cost_models.units import GIB
from planner.formats.megatron import Raw, arguments_of_mapping
from planner.validation.rows import MAX_FILE_BYTES, Run

PROGRAMS: Final = {"bert": "bert", "t5": "t5", "hybrid": "hybrid"}
"""What a test trains, by its folder; gpt for the others."""

GPUS: Final = (("a100", "A100-SXM-80GB"), ("gb200", "GB200"), ("b200", "B200"), ("h100", "H100-SXM"))
NODE_DEVICES: Final = 8
MEMORY_KIND: Final = "max allocated GiB, last rank"


def read_test_runs(path: Path) -> tuple[Run, ...]:
    """All runs of the list; raises BadInput where the file holds no such list."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise BadInput(f"runs {path} exceed {MAX_FILE_BYTES:,} bytes; split the list")
        data = parse_json(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"runs {path} cannot be read ({error}); give a JSON list of runs") from error
    if not isinstance(data, list) or not data:
        raise BadInput(f"runs {path} hold no list of runs; see profiles/published/README.md")
    return tuple(_run(number, row, path) for number, row in enumerate(data))


def _run(number: int, row: object, path: Path) -> Run:
    """One run in the words of the table of runs."""
    if not isinstance(row, Mapping) or not isinstance(row.get("args"), Mapping):
        raise BadInput(
            f"run {number} of {path} has no args; give test, platform, args and the measured figures"
        )
    test, platform = str(row.get("test", ""))[:200], str(row.get("platform", ""))[:80]
    folder, _, name = test.partition("/")
    arguments = arguments_of_mapping(row["args"])
    devices = row.get("n_gpus")
    cells = {
        "id": f"{folder or 'test'}-{number}",
        "model": name or test,
        "platform": platform,
        "framework": "Megatron-Core",
        "program": PROGRAMS.get(folder, "gpt"),
        "kind": "moe" if "num-experts" in arguments else "dense",
        "gpu": str(row.get("gpu") or _gpu(platform)),
        "n_gpus": str(devices or _devices(arguments)),
        "assumed_devices": "" if devices else "yes",
        "gpus_per_node": str(row.get("gpus_per_node") or NODE_DEVICES),
        "memory_kind": MEMORY_KIND,
        **_measured(row),
    }
    return Run({key: value for key, value in cells.items() if value}, path.parent, arguments)


def _measured(row: Mapping[str, Any]) -> dict[str, str]:
    """Peak and step time, where they are positive numbers."""
    peak, step_s = row.get("mem_max_allocated_bytes"), row.get("iteration_time_s_median")
    return {
        "peak_memory_gib": repr(float(peak) / GIB) if peak is not None and _is_positive(peak) else "",
        "step_time_s": repr(float(step_s)) if step_s is not None and _is_positive(step_s) else "",
    }


def _is_positive(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return bool(number and math.isfinite(value) and value > 0)  # type: ignore[arg-type, operator]


def _gpu(platform: str) -> str:
    """The GPU that a platform's name holds."""
    return next((gpu for part, gpu in GPUS if part in platform.lower()), platform or "unknown")


def _devices(arguments: Raw) -> int:
    """Devices of a run that does not state them: one node, or as many nodes as its model parallel sizes need."""
    sizes = ("tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size")
    inner = math.prod(int(arguments[name]) for name in sizes if arguments.get(name, "").isdigit())
    return max(inner, 1) * -(-NODE_DEVICES // max(inner, 1))
