"""What every writer of settings takes and gives: a planned run in, files and what they cannot say out."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cost_models.errors import BadInput
from cost_models.specs.job import Job
from cost_models.specs.model import ModelSpec
from cost_models.specs.strategy import Strategy
from planner.situation import Situation


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One strategy in its situation; `plan_id` names the plan that it comes from, where there is one."""

    situation: Situation
    strategy: Strategy
    plan_id: str = ""

    @property
    def model(self) -> ModelSpec:
        """The model."""
        return self.situation.model

    @property
    def job(self) -> Job:
        """The job, every default filled."""
        return self.situation.job

    @property
    def nodes(self) -> tuple[int, int]:
        """Nodes and devices of each; raises BadInput where nodes are unequal, which no launcher line says."""
        cluster = self.situation.cluster
        per_node = {group.devices_per_node for group in cluster.groups}
        devices = cluster.num_devices
        if len(per_node) > 1:
            raise BadInput(
                f"nodes of {sorted(per_node)} devices are not written as one launch line; export a cluster whose "
                "nodes are equal"
            )
        each = min(per_node.pop(), devices)
        if devices % each:
            raise BadInput(
                f"{devices} devices are not whole nodes of {each}; plan for {devices // each * each} devices"
            )
        return devices // each, each


@dataclass(frozen=True, slots=True)
class Export:
    """Settings of a framework: files by name, which one starts the run, and what the target cannot say.

    `losses` are differences between the plan and what the framework will do, each a sentence; empty means that the
    files say all of the plan.
    """

    framework: str
    version: str
    files: Mapping[str, str]
    script: str
    losses: tuple[str, ...] = ()

    def write(self, folder: Path) -> tuple[Path, ...]:
        """Write every file into a folder, made where missing; raises BadInput where that cannot be."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            written = []
            for name, text in self.files.items():
                path = folder / name
                path.write_text(text, encoding="utf-8")
                if name == self.script and text.startswith("#!"):
                    path.chmod(0o755)
                written.append(path)
        except OSError as error:
            raise BadInput(
                f"folder {str(folder)[:200]} cannot be written ({error.strerror}); choose another -o"
            ) from None
        return tuple(written)

    def to_json(self) -> dict[str, object]:
        """`planner export --json`."""
        return {
            "framework": self.framework,
            "version": self.version,
            "files": dict(self.files),
            "script": self.script,
            "losses": list(self.losses),
        }


def header(run: PlannedRun, framework: str, version: str) -> list[str]:
    """Comment lines that say what a file is for."""
    cluster = run.situation.cluster
    of_plan = f" from {run.plan_id}" if run.plan_id else ""
    return [
        f"# {framework} {version} settings written by parallelism-planner{of_plan}.",
        f"# {run.model.name} on {cluster.num_devices} devices of {cluster.name}, global batch {run.job.global_batch}",
        f"# {run.strategy.text()}",
    ]


def torchrun_lines(run: PlannedRun) -> list[str]:
    """The first lines of a torchrun command on every node; what it starts goes on the next one."""
    nodes, each = run.nodes
    return [
        "torchrun \\",
        f'  --nnodes "${{NNODES:-{nodes}}}" --nproc-per-node {each} --node-rank "${{NODE_RANK:-0}}" \\',
        '  --master-addr "${MASTER_ADDR:-127.0.0.1}" --master-port "${MASTER_PORT:-29500}" \\',
    ]


def library_script(run: PlannedRun, title: tuple[str, str], launch: list[str], program: str) -> str:
    """A launch script for a transformers model that lies in $MODEL.

    `title` is framework and version, `launch` the first lines of the command that starts `program` beside it.
    """
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            *header(run, *title),
            "set -euo pipefail",
            ': "${MODEL:?set MODEL to the folder or name of a transformers model}"',
            "export MODEL",
            'cd "$(dirname "${BASH_SOURCE[0]}")"',
            *launch,
            f'  {program} "$@"',
            "",
        ]
    )
