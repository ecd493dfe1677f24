"""Megatron-Core's own test runs: their exact arguments, the last rank's peak, the median step."""

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cost_models.errors import BadInput
from cost_models.profiles import profiles_root
from cost_models.strict_json import parse_json
from cost_models.units import GIB
from planner.formats.megatron import Raw, arguments_of_mapping
from planner.validation.rows import MAX_FILE_BYTES, Run

PROGRAMS: Final = {"bert": "bert", "t5": "t5", "hybrid": "hybrid"}
"""What a test trains, by its folder; gpt for the others."""

GPUS: Final = (("a100", "A100-SXM-80GB"), ("gb200", "GB200"), ("b200", "B200"), ("h100", "H100-SXM"))
NODE_DEVICES: Final[Mapping[str, int]] = {"GB200": 4}
"""GPUs of a node, where they are not eight."""

USUAL_NODE: Final = 8
USUAL_GPU: Final = "A100-SXM-80GB"
"""What the tests without a platform's GPU in their name ran on: the oldest of their machines."""

ONE_NODE: Final = "_1node"
"""End of the names of tests that run on one node."""

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
    load = routing_load()
    return tuple(_run(number, row, path, load) for number, row in enumerate(data))


def routing_load() -> float:
    """Routed copies on an expert rank at its fullest micro-batch over the mean, fitted to the mixture tests."""
    path = profiles_root() / "published" / "megatron_ci.toml"
    figure = tomllib.loads(path.read_text(encoding="utf-8"))["moe_imbalance"]
    return float(figure["value"])


def _run(number: int, row: object, path: Path, load: float) -> Run:
    """One run in the words of the table of runs."""
    if not isinstance(row, Mapping) or not isinstance(row.get("args"), Mapping):
        raise BadInput(
            f"run {number} of {path} has no args; give test, platform, args and the measured figures"
        )
    test, platform = str(row.get("test", ""))[:200], str(row.get("platform", ""))[:80]
    folder, _, name = test.partition("/")
    arguments = arguments_of_mapping(row["args"])
    gpu = _named(row.get("gpu")) or _gpu(platform)
    per_node = row.get("gpus_per_node") or NODE_DEVICES.get(gpu, USUAL_NODE)
    devices = row.get("n_gpus") or (per_node if name.endswith(ONE_NODE) else None)
    cells = {
        "id": f"{folder or 'test'}-{number}",
        "model": name or test,
        "platform": platform,
        "framework": "Megatron-Core",
        "program": PROGRAMS.get(folder, "gpt"),
        "kind": "moe" if "num-experts" in arguments else "dense",
        "test": test,
        "gpu": gpu or USUAL_GPU,
        "assumed_gpu": "" if gpu else "yes",
        "n_gpus": str(devices or _devices(arguments, int(per_node))),
        "assumed_devices": "" if devices else "yes",
        "gpus_per_node": str(per_node),
        "sharded": "yes" if _is_on(arguments, "use-distributed-optimizer") else "",
        "moe_imbalance": repr(load) if "num-experts" in arguments else "",
        "memory_kind": MEMORY_KIND,
        **_measured(row),
    }
    return Run({key: value for key, value in cells.items() if value}, path.parent, arguments)


def _measured(row: Mapping[str, Any]) -> dict[str, str]:
    """Peak and step time, where they are positive numbers."""
    peak, step_s = row.get("mem_max_allocated_bytes"), row.get("iteration_time_s_median")
    resident: Any = row.get("mem_allocated_bytes")
    return {
        "peak_memory_gib": repr(float(peak) / GIB) if peak is not None and _is_positive(peak) else "",
        "resident_gib": repr(float(resident) / GIB) if _is_positive(resident) else "",
        "step_time_s": repr(float(step_s)) if step_s is not None and _is_positive(step_s) else "",
    }


def _is_positive(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return bool(number and math.isfinite(value) and value > 0)  # type: ignore[arg-type, operator]


def _named(gpu: object) -> str:
    """The GPU that a row states; nothing where it says that it does not know."""
    return gpu if isinstance(gpu, str) and gpu != "unknown" else ""


def _gpu(platform: str) -> str:
    """The GPU that a platform's name holds, or nothing."""
    return next((gpu for part, gpu in GPUS if part in platform.lower()), "")


def _is_on(arguments: Raw, name: str) -> bool:
    return arguments.get(name, "false") not in ("false", "0")


def _devices(arguments: Raw, per_node: int) -> int:
    """Devices of a run that does not state them: one node, or as many nodes as its parallel sizes need."""
    dense = ("tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size")
    expert: tuple[str, ...] = (
        "expert-model-parallel-size",
        "expert-tensor-parallel-size",
        "pipeline-model-parallel-size",
    )

    def product(names: tuple[str, ...]) -> int:
        return max(math.prod(int(arguments[name]) for name in names if arguments.get(name, "").isdigit()), 1)

    if "expert-tensor-parallel-size" not in arguments:  # it is tp's then
        expert = (*expert, "tensor-model-parallel-size")
    needed = math.lcm(product(dense), product(expert) if "num-experts" in arguments else 1)
    return needed * -(-per_node // needed)
