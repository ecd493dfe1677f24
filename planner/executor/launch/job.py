"""What every launcher beyond this process takes and tells: a folder with a script, and how far its job is.

A launcher starts the script once on every node, with NNODES, NODE_RANK, MASTER_ADDR and MASTER_PORT set, so that rank
r stands on node r // per_node: ranks follow the strategy's order of axes, nodes the order of the cluster.
"""

import re
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, Protocol

from cost_models.errors import BadInput, PlannerError
from cost_models.specs.cluster import ClusterSpec

MAX_NAME: Final = 40
"""A JobSet's pods add at most 23 characters (`-node-0-NNNNN-xxxxx`) to the name, and a label ends at 63."""
MASTER_PORT: Final = 29500
LOGS: Final = "logs"
NODE_LOG: Final = "node-{}.log"


class LaunchFailed(PlannerError):
    """A launcher's own program or server refused; the sentence says which and what to change."""


class LauncherMissing(BadInput):
    """A launcher whose programs, package or configuration are not on this machine."""


class JobPhase(Enum):
    """How far a job is; the last three are final."""

    PENDING = "pending"
    RUNNING = "running"
    ENDING = "ending"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether nothing of the job runs or will run."""
        return self in (JobPhase.SUCCEEDED, JobPhase.FAILED, JobPhase.CANCELLED)


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job as its launcher sees it; `reason` is the launcher's own word, `restarts` how often it began anew."""

    phase: JobPhase
    reason: str = ""
    exit_code: int | None = None
    restarts: int = 0
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchJob:
    """One job: `script` in `folder` runs on each of `num_nodes` nodes with `per_node` processes."""

    name: str
    folder: Path
    script: str
    num_nodes: int
    per_node: int
    on_cpu: bool
    restarts: int = 0
    comment: str = ""
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def world_size(self) -> int:
        """Processes of all nodes."""
        return self.num_nodes * self.per_node

    def node_of(self, rank: int) -> int:
        """The node that a rank stands on."""
        return rank // self.per_node


class Launcher(Protocol):
    """Starts jobs somewhere else and follows them; every call returns soon and may raise LaunchFailed."""

    @property
    def poll_s(self) -> float:
        """Seconds between two looks at a job."""

    @property
    def shares_files(self) -> bool:
        """Whether nodes see this machine's folders."""

    @property
    def run_dir(self) -> str:
        """Where nodes that do not have the job's folder."""

    def write(self, job: LaunchJob) -> tuple[Path, ...]:
        """Write what would be submitted into the job's folder; starts nothing."""

    def find(self, job: LaunchJob) -> str | None:
        """The id of a job of this name that was submitted before, so that none is submitted twice."""

    def submit(self, job: LaunchJob) -> str:
        """Start the job; its id."""

    def status(self, job: LaunchJob, job_id: str) -> JobStatus:
        """How far it is."""

    def fetch(self, job: LaunchJob, job_id: str) -> None:
        """Bring new log lines and events into the job's folder, where they are not written there anyway."""

    def cancel(self, job: LaunchJob, job_id: str) -> None:
        """Ask for its end; `status` says when it is over."""


def job_name(text: str) -> str:
    """A name that Slurm and Kubernetes take: lower case letters, digits and dashes, a letter first."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return f"planner-{plain}"[:MAX_NAME].rstrip("-")


def nodes_of(cluster: ClusterSpec, per_node: int | None = None) -> tuple[int, int]:
    """Nodes of a cluster and processes on each; raises BadInput where they are unequal.

    `per_node` is how many processes a node really takes, where that is not the cluster's own number.
    """
    devices = cluster.num_devices
    sizes = {min(group.devices_per_node, group.num_devices) for group in cluster.groups}
    if per_node is None and len(sizes) > 1:
        raise BadInput(
            f"nodes of {sorted(sizes)} devices cannot be started by one script; give --nproc, a divisor of {devices}"
        )
    each = per_node or sizes.pop()
    if devices % each:
        raise BadInput(
            f"the plan's {devices} processes are no multiple of {each} on a node; plan for {devices // each * each} "
            f"devices, or give --nproc, a divisor of {devices}"
        )
    return devices // each, each
