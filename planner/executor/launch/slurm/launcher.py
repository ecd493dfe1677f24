"""Slurm through its own commands: sbatch, squeue, scontrol, sacct, scancel."""

import getpass
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cost_models.errors import BadInput
from planner.executor.launch.job import LOGS, JobPhase, JobStatus, LauncherMissing, LaunchFailed, LaunchJob
from planner.executor.launch.slurm.options import SlurmOptions
from planner.executor.launch.slurm.script import SBATCH, sbatch_script

POLL_S: Final = 2.0
COMMAND_S: Final = 60.0
RUN_MARK: Final = "PLANNER_RUN_ID"
"""Set by the supervisor of a run over HTTP; a job outlives it."""
COMMANDS: Final = ("sbatch", "squeue", "scontrol", "scancel")
PHASES: Final[Mapping[str, JobPhase]] = {
    "PENDING": JobPhase.PENDING,
    "CONFIGURING": JobPhase.PENDING,
    "REQUEUED": JobPhase.PENDING,
    "REQUEUE_HOLD": JobPhase.PENDING,
    "REQUEUE_FED": JobPhase.PENDING,
    "RESV_DEL_HOLD": JobPhase.PENDING,
    "SPECIAL_EXIT": JobPhase.PENDING,
    "RUNNING": JobPhase.RUNNING,
    "SUSPENDED": JobPhase.RUNNING,
    "STOPPED": JobPhase.RUNNING,
    "RESIZING": JobPhase.RUNNING,
    "SIGNALING": JobPhase.RUNNING,
    "STAGE_OUT": JobPhase.ENDING,
    "COMPLETING": JobPhase.ENDING,
    "COMPLETED": JobPhase.SUCCEEDED,
    "CANCELLED": JobPhase.CANCELLED,
}
"""Slurm's job states (squeue(1), "JOB STATE CODES"); every other one is a failure."""
_FIELD: Final = re.compile(r"(?:^| )([A-Za-z:]+)=(\S*)")


@dataclass(frozen=True, slots=True)
class SlurmLauncher:
    """Submits jobs to the cluster that this machine's Slurm commands reach."""

    options: SlurmOptions = field(default_factory=SlurmOptions)
    poll_s: float = POLL_S
    shares_files: bool = True
    run_dir: str = ""

    def write(self, job: LaunchJob) -> tuple[Path, ...]:
        """Write `job.sbatch` into the job's folder."""
        path = job.folder / SBATCH
        try:
            (job.folder / LOGS).mkdir(parents=True, exist_ok=True)
            path.write_text(sbatch_script(job, self.options), encoding="utf-8")
        except OSError as error:
            raise BadInput(
                f"{str(path)[:200]!r} cannot be written ({error.strerror}); choose another"
            ) from None
        return (path,)

    def find(self, job: LaunchJob) -> str | None:
        """The newest job of this name, running or remembered by the controller."""
        asked = ["squeue", "--noheader", "--states=all", f"--name={job.name}", f"--user={getpass.getuser()}"]
        found = _call([*asked, "--format=%A"]).split()
        return max(found, key=int) if found else None

    def submit(self, job: LaunchJob) -> str:
        """The job's number."""
        path = self.write(job)[0]
        answer = _call(["sbatch", "--parsable", f"--chdir={job.folder}", str(path)])
        job_id = answer.strip().partition(";")[0]
        if not job_id.isdigit():
            raise LaunchFailed(f"sbatch answered {answer[:200]!r} instead of a job's number; look at its log")
        return job_id

    def status(self, job: LaunchJob, job_id: str) -> JobStatus:
        """What the controller says, or the accounting where it has forgotten the job."""
        text = _call(["scontrol", "show", "job", "--oneliner", job_id], or_empty="Invalid job id")
        if not text.strip():
            return _accounted(job_id)
        return status_of_text(text)

    def fetch(self, job: LaunchJob, job_id: str) -> None:
        """Nothing to bring: logs and events are written into the job's folder, which all nodes see."""

    def cancel(self, job: LaunchJob, job_id: str) -> None:
        """Ask for its end; a job that is over already stays as it is."""
        _call(["scancel", job_id], or_empty="Invalid job id")


def check_slurm() -> None:
    """Raise LauncherMissing where Slurm's commands are not here."""
    missing = [name for name in COMMANDS if shutil.which(name) is None]
    if missing:
        raise LauncherMissing(
            f"{', '.join(missing)} not found on this machine; run where Slurm's commands are, or use --launcher local"
        )


def status_of_text(text: str) -> JobStatus:
    """A job's status from `scontrol show job --oneliner`."""
    values: dict[str, str] = {}
    for key, value in _FIELD.findall(text):
        values.setdefault(key, value)
    state = values.get("JobState", "")
    nodes = values.get("NodeList", "")
    return JobStatus(
        PHASES.get(state, JobPhase.FAILED),
        state if values.get("Reason", "None") == "None" else f"{state} ({values['Reason']})",
        _exit_code(values.get("ExitCode", "")),
        int(values.get("Restarts", "0") or 0),
        () if nodes in ("", "(null)") else _hosts(nodes),
    )


def _hosts(nodes: str) -> tuple[str, ...]:
    """Hosts of Slurm's list notation, in the order in which their tasks are numbered."""
    return (
        tuple(_call(["scontrol", "show", "hostnames", nodes]).split())
        if "[" in nodes
        else tuple(nodes.split(","))
    )


def _accounted(job_id: str) -> JobStatus:
    """What the accounting knows of a job that the controller has forgotten."""
    if shutil.which("sacct"):
        command = ["sacct", "-X", "-n", "-P", "-j", job_id, "-o", "State,ExitCode"]
        state, _, code = _call(command, or_empty="").strip().partition("|")
        if state:
            word = state.split()[0]
            return JobStatus(PHASES.get(word, JobPhase.FAILED), word, _exit_code(code))
    return JobStatus(JobPhase.FAILED, "Slurm has forgotten the job and keeps no accounting")


def _exit_code(text: str) -> int | None:
    """`code:signal` as one number, the signal as a negative one."""
    code, _, number = text.partition(":")
    if not code.isdigit():
        return None
    return -int(number) if number.isdigit() and int(number) else int(code)


def _environment() -> dict[str, str]:
    """This environment, which Slurm hands on to the job, without the mark of processes that end with a supervisor."""
    return {key: value for key, value in os.environ.items() if key != RUN_MARK}


def _call(command: list[str], or_empty: str | None = None) -> str:
    """Standard output of a command; "" where it fails with these words (or any, if those are empty)."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_S, check=False, env=_environment()
        )
    except FileNotFoundError:
        raise LauncherMissing(f"{command[0]} not found; run where Slurm's commands are") from None
    except subprocess.TimeoutExpired:
        raise LaunchFailed(
            f"{command[0]} gave no answer in {COMMAND_S:.0f} s; is the controller up?"
        ) from None
    if done.returncode == 0:
        return done.stdout
    said = " ".join(done.stderr.split())[:300]
    if or_empty is not None and or_empty in said:
        return ""
    raise LaunchFailed(f"{command[0]} failed with exit code {done.returncode}: {said}")
