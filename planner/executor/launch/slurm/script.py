"""The sbatch script of a job: one task on each node, which runs the job's script with its place among the nodes."""

import shlex
import sys
from pathlib import Path
from typing import Final

from planner.executor.launch.job import LOGS, LaunchJob
from planner.executor.launch.slurm.options import SlurmOptions

SBATCH: Final = "job.sbatch"
MOST_RESTARTS: Final = 1000
# Below the ephemeral ports of Linux (32768 and up), above those of well-known services.
FIRST_PORT, NUM_PORTS = 20_000, 12_000


def sbatch_script(job: LaunchJob, options: SlurmOptions) -> str:
    """The script's text.

    Nodes are numbered as Slurm lists them, which is the cluster's own order. Slurm starts the job anew when a node
    fails or is taken (`--requeue`); a job that fails on its own is put back as often as `restarts` says.
    """
    lines = [
        "#!/bin/bash",
        *(f"#SBATCH {option}" for option in _options(job, options)),
        f"# {job.comment}",
        "set -u",
        f"cd {shlex.quote(str(job.folder))}",
        f"mkdir -p {LOGS}",
        *_environment(job),
        *([options.setup] if options.setup else []),
        'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        # A node's name need not be known to the resolver; its address is what Slurm itself uses.
        r"""MASTER_ADDR=$(scontrol show node "$first" | sed -n 's/.*NodeAddr=\([^ ]*\).*/\1/p')""",
        f"MASTER_PORT=$(( {FIRST_PORT} + SLURM_JOB_ID % {NUM_PORTS} ))",
        f"NNODES={job.num_nodes}",
        "PLANNER_REQUEUES=${SLURM_RESTART_COUNT:-0}",
        "export MASTER_ADDR MASTER_PORT NNODES PLANNER_REQUEUES",
        f"srun --nodes={job.num_nodes} --ntasks={job.num_nodes} --ntasks-per-node=1 --kill-on-bad-exit=1 \\",
        f"  --open-mode=append --output={LOGS}/node-%n.log \\",
        f"  bash -c 'NODE_RANK=$SLURM_NODEID exec bash {shlex.quote(job.script)}'",
        "code=$?",
        *_put_back(job),
        "exit $code",
    ]
    return "\n".join(lines) + "\n"


def _options(job: LaunchJob, options: SlurmOptions) -> list[str]:
    exclusive = not job.on_cpu if options.exclusive is None else options.exclusive
    gres = options.gres or ("" if job.on_cpu else f"gpu:{job.per_node}")
    cpus = options.cpus_per_node or (job.per_node if job.on_cpu else None)
    stated = {
        key: getattr(options, key)
        for key in (
            "partition",
            "account",
            "qos",
            "time",
            "reservation",
            "constraint",
            "nodelist",
            "exclude",
            "mem",
        )
    }
    return [
        f"--job-name={job.name}",
        f"--nodes={job.num_nodes}",
        f"--ntasks={job.num_nodes}",
        "--ntasks-per-node=1",
        *([f"--cpus-per-task={cpus}"] if cpus else []),
        *([f"--gres={gres}"] if gres else []),
        *(["--exclusive"] if exclusive else []),
        *(f"--{key}={value}" for key, value in stated.items() if value),
        "--requeue",
        "--open-mode=append",
        f"--output={LOGS}/job.log",
        *shlex.split(options.extra),
    ]


def _environment(job: LaunchJob) -> list[str]:
    """The job's own settings, and the Python that submitted it first on the path."""
    values = {"RUN_DIR": str(job.folder), **job.environment}
    folder = shlex.quote(str(Path(sys.executable).parent))
    return [
        f'export PATH={folder}:"$PATH"',
        *(f"export {key}={shlex.quote(value)}" for key, value in values.items()),
    ]


def _put_back(job: LaunchJob) -> list[str]:
    if not job.restarts or job.num_nodes == 1:
        return []
    return [
        f'if [ "$code" -ne 0 ] && [ "$PLANNER_REQUEUES" -lt {min(job.restarts, MOST_RESTARTS)} ]; then',
        '  scontrol requeue "$SLURM_JOB_ID" && sleep 60',
        "fi",
    ]
