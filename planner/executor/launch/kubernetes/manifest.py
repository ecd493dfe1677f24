"""The manifests of a job: a ConfigMap with its files, and a JobSet (v1alpha2) or a TrainJob (trainer, v1alpha1).

One pod stands for one node. Its number among the nodes is the completion index, which Kubernetes gives in order, so
that ranks keep the strategy's order of axes from pod to pod.
"""

from pathlib import Path
from typing import Any, Final

from cost_models.errors import BadInput
from planner.executor.launch.job import MASTER_PORT, LaunchJob
from planner.executor.launch.kubernetes.options import KubernetesOptions

Manifest = dict[str, Any]

JOBSET_API: Final = "jobset.x-k8s.io/v1alpha2"
TRAINJOB_API: Final = "trainer.kubeflow.org/v1alpha1"
NODE: Final = "node"
FILES: Final = "/planner"
RUN_DIR: Final = "/run-dir"
SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 - of the pod, not of this machine
MAX_FILES_BYTES: Final = 1_000_000
"""A ConfigMap holds 1 MiB in all (Kubernetes API reference, ConfigMap)."""
INDEX: Final = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
RESTART: Final = "metadata.labels['jobset.sigs.k8s.io/restart-attempt']"
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
TOPOLOGY: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
MANAGER: Final = "parallelism-planner.run/files"
NAME_LABEL: Final = "parallelism-planner.run/name"


def manifests(job: LaunchJob, options: KubernetesOptions, files: dict[str, str]) -> tuple[Manifest, Manifest]:
    """The ConfigMap and the job's own object."""
    work = _jobset(job, options) if options.kind == "jobset" else _trainjob(job, options)
    return _config_map(job, options, files), work


def files_of(folder: Path, names: tuple[str, ...]) -> dict[str, str]:
    """The text of the files that pods need; raises BadInput for what a ConfigMap cannot hold."""
    files = {}
    for name in names:
        try:
            files[name] = (folder / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise BadInput(
                f"file {name!r:.100} cannot be read as text; put it into the image instead"
            ) from None
    size = sum(len(text.encode()) for text in files.values())
    if size > MAX_FILES_BYTES:
        raise BadInput(
            f"the job's files have {size:,} bytes, a ConfigMap holds {MAX_FILES_BYTES:,}; put the larger ones into "
            "the image"
        )
    return files


def _metadata(job: LaunchJob, options: KubernetesOptions) -> Manifest:
    labels = {NAME_LABEL: job.name} | ({QUEUE_LABEL: options.queue} if options.queue else {})
    annotations = {"parallelism-planner.run/comment": job.comment} if job.comment else {}
    if options.topology and options.kind == "jobset":
        annotations[TOPOLOGY] = options.topology
    known = {"name": job.name, "namespace": options.namespace, "labels": labels}
    return known | ({"annotations": annotations} if annotations else {})


def _config_map(job: LaunchJob, options: KubernetesOptions, files: dict[str, str]) -> Manifest:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(job, options), "data": files}


def _jobset(job: LaunchJob, options: KubernetesOptions) -> Manifest:
    indexed = {
        "parallelism": job.num_nodes,
        "completions": job.num_nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"spec": _pod(job, options)},
    }
    return {
        "apiVersion": JOBSET_API,
        "kind": "JobSet",
        "metadata": _metadata(job, options),
        "spec": {
            "network": {"enableDNSHostnames": True},
            "successPolicy": {"operator": "All"},
            "failurePolicy": {"maxRestarts": job.restarts},
            "ttlSecondsAfterFinished": options.keep_s,
            "replicatedJobs": [{"name": NODE, "replicas": 1, "template": {"spec": indexed}}],
        },
    }


def _pod(job: LaunchJob, options: KubernetesOptions) -> Manifest:
    """A node of a JobSet."""
    environment = [
        {"name": "NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": INDEX}}},
        {"name": "JOBSET_RESTART_ATTEMPT", "valueFrom": {"fieldRef": {"fieldPath": RESTART}}},
        {"name": "NNODES", "value": str(job.num_nodes)},
        {"name": "MASTER_ADDR", "value": f"{job.name}-{NODE}-0-0.{job.name}"},
        {"name": "MASTER_PORT", "value": str(MASTER_PORT)},
        *_environment(job),
    ]
    container = {
        "name": NODE,
        "image": options.image,
        "command": ["bash", "-c", _command(job, "${JOBSET_RESTART_ATTEMPT:-0}")],
        "env": environment,
        "ports": [{"containerPort": MASTER_PORT}],
        "resources": _resources(job, options),
        "volumeMounts": _mounts(job, options),
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    pod = {"restartPolicy": "Never", "containers": [container], "volumes": _volumes(job, options)}
    return pod | _account(options)


def _trainjob(job: LaunchJob, options: KubernetesOptions) -> Manifest:
    """The runtime gives number and address of a node as PET_* (Kubeflow Trainer, its torch plugin)."""
    given = {
        "NODE_RANK": "$PET_NODE_RANK",
        "NNODES": "$PET_NNODES",
        "MASTER_ADDR": "$PET_MASTER_ADDR",
        "MASTER_PORT": "$PET_MASTER_PORT",
    }
    exports = " ".join(f'{key}="{value}"' for key, value in given.items())
    trainer = {
        "image": options.image,
        "command": ["bash", "-c", f"export {exports}; {_command(job, '0')}"],
        "env": _environment(job),
        "numNodes": job.num_nodes,
        "numProcPerNode": job.per_node,
        "resourcesPerNode": _resources(job, options),
    }
    mounted = {"name": NODE, "volumeMounts": _mounts(job, options)}
    pod = {"containers": [mounted], "volumes": _volumes(job, options)} | _account(options)
    patch: Manifest = {
        "spec": {"replicatedJobs": [{"name": NODE, "template": {"spec": {"template": {"spec": pod}}}}]}
    }
    if options.topology:
        patch["metadata"] = {"annotations": {TOPOLOGY: options.topology}}
    return {
        "apiVersion": TRAINJOB_API,
        "kind": "TrainJob",
        "metadata": _metadata(job, options),
        "spec": {
            "runtimeRef": {"name": options.runtime},
            "trainer": trainer,
            "runtimePatches": [{"manager": MANAGER, "trainingRuntimeSpec": {"template": patch}}],
        },
    }


def _command(job: LaunchJob, requeues: str) -> str:
    """The script runs from a copy: a ConfigMap is mounted read-only, and exported scripts write beside themselves."""
    return (
        f'export PLANNER_REQUEUES="{requeues}" RUN_DIR={RUN_DIR}; work="$(mktemp -d)"; '
        f'cp -L {FILES}/* "$work"/; exec bash "$work/{job.script}"'
    )


def _account(options: KubernetesOptions) -> Manifest:
    return {"serviceAccountName": options.service_account} if options.service_account else {}


def _environment(job: LaunchJob) -> list[Manifest]:
    return [{"name": key, "value": value} for key, value in job.environment.items()]


def _resources(job: LaunchJob, options: KubernetesOptions) -> Manifest:
    gpus = {} if job.on_cpu else {options.gpu_resource: str(job.per_node)}
    cpu = options.cpu or (str(job.per_node) if job.on_cpu else "")
    asked = gpus | ({"cpu": cpu} if cpu else {}) | ({"memory": options.memory} if options.memory else {})
    return {"requests": asked, "limits": gpus | ({"memory": options.memory} if options.memory else {})}


def _mounts(job: LaunchJob, options: KubernetesOptions) -> list[Manifest]:
    own = {"subPath": job.name} if options.claim else {}
    return [
        {"name": "files", "mountPath": FILES, "readOnly": True},
        {"name": "run-dir", "mountPath": RUN_DIR, **own},
        {"name": "shared-memory", "mountPath": SHARED_MEMORY},
    ]


def _volumes(job: LaunchJob, options: KubernetesOptions) -> list[Manifest]:
    run_dir = {"persistentVolumeClaim": {"claimName": options.claim}} if options.claim else {"emptyDir": {}}
    return [
        {"name": "files", "configMap": {"name": job.name}},
        {"name": "run-dir", **run_dir},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": options.shared_memory}},
    ]
