"""A plan of another engine through that framework's own script: exported, or edited by the user, then launched."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from cost_models.errors import BadInput, IllegalStrategy, Violation
from planner.formats.export import PlannedRun
from planner.formats.registry import write_settings
from planner.situation import Situation

FORMAT_OF_ENGINE: Final[Mapping[str, str]] = {
    "megatron": "megatron",
    "torchtitan": "torchtitan",
    "deepspeed": "deepspeed",
    "fsdp2": "fsdp2",
}
PACKAGES: Final[Mapping[str, str]] = {
    "megatron": "megatron.core",
    "torchtitan": "torchtitan",
    "deepspeed": "deepspeed",
}
PASSED: Final = (
    "MODEL",
    "MODULE",
    "CONFIG",
    "MEGATRON_PATH",
    "STEPS",
    "DATA_PATH",
    "TOKENIZER",
    "PYTHONPATH",
)
"""Variables that exported scripts read, handed on to nodes from here."""
STANDARD_ERROR: Final = 2


@dataclass(frozen=True, slots=True)
class Exported:
    """A framework's script in a folder, and what its settings could not say of the plan."""

    folder: Path
    script: str
    losses: tuple[str, ...] = ()


def export_script(run: PlannedRun, folder: Path) -> Exported:
    """Write the plan as its engine's script; raises BadInput for an engine that has none."""
    engine = run.job.engine
    if engine not in FORMAT_OF_ENGINE:
        raise IllegalStrategy(
            (
                Violation(
                    "run_engine",
                    f"engine {engine} has no script of its own that could be started",
                    tuple(f"a plan made with --engine {name}" for name in ("torch", *FORMAT_OF_ENGINE)),
                ),
            )
        )
    export = write_settings(run, FORMAT_OF_ENGINE[engine])
    export.write(folder)
    return Exported(folder, export.script, export.losses)


def script_of(path: Path) -> Exported:
    """A script of the user's, say an exported one that was edited; everything beside it travels along."""
    if not path.is_file():
        raise BadInput(f"script {str(path)[:200]!r} is no file; give the script that `planner export` wrote")
    return Exported(path.parent.resolve(), path.name)


def passed_environment() -> dict[str, str]:
    """What the script needs to know from this environment."""
    return {key: os.environ[key] for key in PASSED if key in os.environ}


def check_framework(situation: Situation) -> None:
    """Raise IllegalStrategy where the plan's framework is not installed here, saying how to plan again."""
    engine = situation.job.engine
    package = PACKAGES.get(engine)
    if package is None or os.environ.get("MEGATRON_PATH" if engine == "megatron" else "") or _has(package):
        return
    detail = f"engine {engine} is run by its own script, and {package} is not installed here"
    ways = (
        f"install {engine}",
        "--launcher slurm or kubernetes, where it is",
        "a plan made with --engine torch",
    )
    raise IllegalStrategy((Violation("run_engine", detail, ways),))


def run_here(exported: Exported) -> int:
    """Run the script on this machine to its end, its output on standard error; its exit code."""
    environment = {**os.environ, "NNODES": "1", "NODE_RANK": "0"}
    command = ["bash", str(exported.folder / exported.script)]
    with subprocess.Popen(command, env=environment, stdout=STANDARD_ERROR, cwd=exported.folder) as process:
        try:
            return process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise


def _has(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False
