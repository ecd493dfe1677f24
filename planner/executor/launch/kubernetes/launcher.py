"""Kubernetes through its official client; the cluster is the one of the kubeconfig, or the pod's own."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml  # type: ignore[import-untyped]

from cost_models.errors import BadInput
from planner.executor.launch.job import JobPhase, JobStatus, LauncherMissing, LaunchFailed, LaunchJob
from planner.executor.launch.kubernetes.logs import PodLog, keep_lines
from planner.executor.launch.kubernetes.manifest import NODE, RUN_DIR, Manifest, files_of, manifests
from planner.executor.launch.kubernetes.options import KubernetesOptions
from planner.executor.launch.script import ORDER

POLL_S: Final = 3.0
CALL_S: Final = 30.0
NOT_FOUND, BAD_REQUEST, CONFLICT = 404, 400, 409
PLURALS: Final[Mapping[str, tuple[str, str, str]]] = {
    "jobset": ("jobset.x-k8s.io", "v1alpha2", "jobsets"),
    "trainjob": ("trainer.kubeflow.org", "v1alpha1", "trainjobs"),
}
DONE: Final = ("Completed", "Complete")
POD_LABEL: Final = "jobset.sigs.k8s.io/jobset-name"
INDEX: Final = "batch.kubernetes.io/job-completion-index"
LIVE: Final = ("Pending", "Running", "Unknown")

T = TypeVar("T")


@dataclass(slots=True)
class KubernetesLauncher:
    """Submits JobSets or TrainJobs with the user's own rights."""

    options: KubernetesOptions = field(default_factory=KubernetesOptions)
    poll_s: float = POLL_S
    shares_files: bool = False
    run_dir: str = RUN_DIR
    _client: Any = None

    def write(self, job: LaunchJob) -> tuple[Path, ...]:
        """Write `jobset.yaml` and `trainjob.yaml`, each with the job's files, whichever would be submitted."""
        files = files_of(job.folder, _names(job))
        written = []
        for kind in PLURALS:
            path = job.folder / f"{kind}.yaml"
            documents = manifests(job, self.options.model_copy(update={"kind": kind}), files)
            try:
                path.write_text(yaml.safe_dump_all(documents, sort_keys=False), encoding="utf-8")
            except OSError as error:
                raise BadInput(f"{str(path)[:200]!r} cannot be written ({error.strerror})") from None
            written.append(path)
        return tuple(written)

    def find(self, job: LaunchJob) -> str | None:
        """The object of this name, where there is one."""
        return job.name if self._object(job) is not None else None

    def submit(self, job: LaunchJob) -> str:
        """Create the ConfigMap, then the object; what is there already stays."""
        config_map, work = manifests(job, self.options, files_of(job.folder, _names(job)))
        core, custom = self._core(), self._custom()
        space = self.options.namespace
        _create(lambda: core.create_namespaced_config_map(space, config_map, _request_timeout=CALL_S))
        _create(
            lambda: custom.create_namespaced_custom_object(
                *self._place(), self._plural(), work, _request_timeout=CALL_S
            )
        )
        return job.name

    def status(self, job: LaunchJob, job_id: str) -> JobStatus:
        """From the object's conditions; an object that is gone was cancelled once its pods are gone too."""
        found = self._object(job)
        if found is not None:
            return status_of_object(found)
        pods = [pod for pod in self._pods(job) if pod["phase"] in LIVE]
        return JobStatus(JobPhase.ENDING if pods else JobPhase.CANCELLED, "deleted")

    def fetch(self, job: LaunchJob, job_id: str) -> None:
        """Log lines of every pod since the last time."""
        core = self._core()
        read = partial(core.read_namespaced_pod_log, namespace=self.options.namespace, container=NODE)
        for pod in self._pods(job):
            call = partial(read, pod["name"], timestamps=True, _request_timeout=CALL_S)
            text = _call(call, (NOT_FOUND, BAD_REQUEST))  # a pod that has not started has no log
            if text:
                keep_lines(job.folder, PodLog(pod["node"], pod["name"], str(text)))

    def cancel(self, job: LaunchJob, job_id: str) -> None:
        """Delete the object and its files; Kubernetes ends the pods."""
        custom, core, space = self._custom(), self._core(), self.options.namespace
        _call(
            lambda: custom.delete_namespaced_custom_object(
                *self._place(),
                self._plural(),
                job_id,
                propagation_policy="Foreground",
                _request_timeout=CALL_S,
            ),
            (NOT_FOUND,),
        )
        _call(lambda: core.delete_namespaced_config_map(job_id, space, _request_timeout=CALL_S), (NOT_FOUND,))

    def check(self) -> None:
        """Raise LauncherMissing where there is no client or no cluster that it knows."""
        self._api()

    def _object(self, job: LaunchJob) -> Manifest | None:
        custom = self._custom()
        found = _call(
            lambda: custom.get_namespaced_custom_object(
                *self._place(), self._plural(), job.name, _request_timeout=CALL_S
            ),
            (NOT_FOUND,),
        )
        return found if isinstance(found, dict) else None

    def _pods(self, job: LaunchJob) -> list[dict[str, Any]]:
        core, selector = self._core(), f"{POD_LABEL}={job.name}"
        listed = _call(
            lambda: core.list_namespaced_pod(
                self.options.namespace, label_selector=selector, _request_timeout=CALL_S
            )
        )
        return [
            {
                "name": pod.metadata.name,
                "phase": pod.status.phase,
                "node": int(
                    {**(pod.metadata.annotations or {}), **(pod.metadata.labels or {})}.get(INDEX, 0)
                ),
            }
            for pod in (listed.items if listed is not None else ())
        ]

    def _place(self) -> tuple[str, str, str]:
        group, version, _ = PLURALS[self.options.kind]
        return group, version, self.options.namespace

    def _plural(self) -> str:
        return PLURALS[self.options.kind][2]

    def _core(self) -> Any:
        from kubernetes import client

        return client.CoreV1Api(self._api())

    def _custom(self) -> Any:
        from kubernetes import client

        return client.CustomObjectsApi(self._api())

    def _api(self) -> Any:
        """The client of the configured cluster, made once."""
        if self._client is not None:
            return self._client
        if find_spec("kubernetes") is None:
            raise LauncherMissing(
                "the Kubernetes client is not installed; install parallelism-planner[kubernetes], or write the "
                "manifests with --dry-run -o DIR"
            )
        from kubernetes import client

        _load_config(self.options.context)
        self._client = client.ApiClient()
        return self._client


def _load_config(context: str) -> None:
    """The kubeconfig, else the pod's own service account."""
    from kubernetes import config

    configured: Any = config  # its functions have no types
    try:
        configured.load_kube_config(context=context or None)
    except config.ConfigException:
        try:
            configured.load_incluster_config()
        except config.ConfigException:
            raise LauncherMissing(
                "no Kubernetes cluster is configured here; set KUBECONFIG, or write the manifests with "
                "--dry-run -o DIR"
            ) from None


def status_of_object(found: Manifest) -> JobStatus:
    """A JobSet's or TrainJob's status as ours."""
    status = found.get("status") or {}
    restarts = int(status.get("restarts") or 0)
    for condition in status.get("conditions") or ():
        if condition.get("status") != "True":
            continue
        words = f"{condition.get('reason', '')}: {condition.get('message', '')}"
        if condition.get("type") in DONE:
            return JobStatus(JobPhase.SUCCEEDED, words, 0, restarts)
        if condition.get("type") == "Failed":
            return JobStatus(JobPhase.FAILED, words, 1, restarts)
    jobs = status.get("replicatedJobsStatus") or status.get("jobsStatus") or ()
    running = any(job.get("active") or job.get("ready") for job in jobs)
    deleted = bool((found.get("metadata") or {}).get("deletionTimestamp"))
    phase = JobPhase.ENDING if deleted else JobPhase.RUNNING if running else JobPhase.PENDING
    return JobStatus(phase, "", None, restarts)


def _names(job: LaunchJob) -> tuple[str, ...]:
    """The job's files: its script, and whatever else lies beside it that the script reads."""
    beside = (
        path.name for path in job.folder.iterdir() if path.suffix in (".json", ".py", ".toml", ".yaml", ".sh")
    )
    own = {f"{kind}.yaml" for kind in PLURALS} | {"job.json"}
    return tuple(sorted({job.script, *beside} - own)) if job.script != "run.sh" else (job.script, ORDER)


def _create(call: Callable[[], object]) -> None:
    """Create an object; one of this name that is there already is ours, made before a restart."""
    _call(call, (CONFLICT,))


def _call(call: Callable[[], T], silent: tuple[int, ...] = ()) -> T | None:
    """The answer of the API server, None for one of these statuses; raises LaunchFailed for any other trouble."""
    from kubernetes.client.exceptions import ApiException
    from urllib3.exceptions import HTTPError

    try:
        return call()
    except ApiException as error:
        if error.status in silent:
            return None
        raise LaunchFailed(f"Kubernetes answered {error.status}: {_message(error)}") from None
    except HTTPError as error:
        what = " ".join(str(error).split())[:200]
        raise LaunchFailed(f"the Kubernetes API server does not answer ({what}); check the cluster") from None


def _message(error: Any) -> str:
    try:
        return str(json.loads(error.body)["message"])[:500]
    except (TypeError, ValueError, KeyError):
        return str(error.reason)[:200]
