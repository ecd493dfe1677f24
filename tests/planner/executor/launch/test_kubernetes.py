"""Manifests hold what their schemas allow; the official client submits, follows and deletes them on a fake cluster."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from cost_models.errors import BadInput
from planner.executor.launch.follow import cancel_and_wait, follow, submit_once
from planner.executor.launch.job import JobPhase, LauncherMissing, LaunchFailed, LaunchJob
from planner.executor.launch.kubernetes import KubernetesLauncher, KubernetesOptions
from planner.executor.launch.kubernetes.logs import PodLog, keep_lines
from planner.executor.launch.kubernetes.manifest import files_of
from tests.planner.executor.launch.fake_kubernetes import FakeKubernetes, schema

STEP = '{"event": "step", "step": 1, "loss": 2.5}'
EVERYTHING = {
    "queue": "training",
    "topology": "cloud.example/rack",
    "claim": "checkpoints",
    "service_account": "trainer",
    "cpu": "96",
    "memory": "900Gi",
}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKubernetes]:
    fake = FakeKubernetes()
    monkeypatch.setenv("KUBECONFIG", str(fake.kubeconfig(tmp_path / "kubeconfig")))
    # Read once, when the client is imported.
    monkeypatch.setattr(
        "kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig")
    )
    yield fake
    fake.stop()


@pytest.fixture
def job(tmp_path: Path) -> LaunchJob:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.sh").write_text("torchrun …\n")
    (folder / "order.json").write_text("{}\n")
    return LaunchJob("planner-tiny", folder, "run.sh", 4, 8, False, restarts=2, comment="tiny: tp=8")


@pytest.mark.parametrize("kind", ["jobset", "trainjob"])
@pytest.mark.parametrize("more", [{}, EVERYTHING])
def test_manifests_hold_against_the_schema(job: LaunchJob, kind: str, more: dict[str, str]) -> None:
    KubernetesLauncher(KubernetesOptions.model_validate(more)).write(job)
    config_map, work = yaml.safe_load_all((job.folder / f"{kind}.yaml").read_text())
    jsonschema_rs.validator_for(schema(kind)).validate(work)
    assert set(config_map["data"]) == {"run.sh", "order.json"}
    assert config_map["metadata"]["name"] == work["metadata"]["name"] == "planner-tiny"


def test_the_schema_refuses_a_misspelt_field(job: LaunchJob) -> None:
    KubernetesLauncher().write(job)
    _, work = yaml.safe_load_all((job.folder / "jobset.yaml").read_text())
    work["spec"]["replicatedJobs"][0]["template"]["spec"]["paralelism"] = 4
    assert not jsonschema_rs.validator_for(schema("jobset")).is_valid(work)


def test_a_pod_is_a_node_and_its_index_its_rank(job: LaunchJob) -> None:
    KubernetesLauncher().write(job)
    _, work = yaml.safe_load_all((job.folder / "jobset.yaml").read_text())
    indexed = work["spec"]["replicatedJobs"][0]["template"]["spec"]
    assert (indexed["completions"], indexed["parallelism"], indexed["completionMode"]) == (4, 4, "Indexed")
    container = indexed["template"]["spec"]["containers"][0]
    environment = {entry["name"]: entry for entry in container["env"]}
    assert "job-completion-index" in environment["NODE_RANK"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert environment["MASTER_ADDR"]["value"] == "planner-tiny-node-0-0.planner-tiny"
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8"}
    assert work["spec"]["failurePolicy"] == {"maxRestarts": 2}


@pytest.mark.parametrize("kind", ["jobset", "trainjob"])
def test_a_job_is_submitted_once_followed_and_its_events_kept(
    cluster: FakeKubernetes, job: LaunchJob, kind: str
) -> None:
    launcher = KubernetesLauncher(KubernetesOptions.model_validate({"kind": kind}), poll_s=0.02)
    assert submit_once(launcher, job) == submit_once(launcher, job) == "planner-tiny"
    assert [method for method, _ in cluster.calls].count("POST") == 2
    seen: list[tuple[JobPhase, int]] = []

    def play(_job_id: str, status: Any) -> None:
        """The controllers' part: pods, then a log, then the end."""
        seen.append((status.phase, status.restarts))
        work = cluster.objects[f"{kind}s", "planner-tiny"]
        if len(seen) == 1:
            cluster.logs[cluster.add_pod("planner-tiny", 0)] = f"2026-01-01T00:00:00.1Z [default0]:{STEP}\n"
            cluster.add_pod("planner-tiny", 1, "Pending")
            jobs = [{"name": "node", "active": 1, "ready": 1, "succeeded": 0, "failed": 0, "suspended": 0}]
            work["status"] = {
                "replicatedJobsStatus" if kind == "jobset" else "jobsStatus": jobs,
                "restarts": 1,
            }
        if len(seen) == 2:
            done = {"jobset": "Completed", "trainjob": "Complete"}[kind]
            work["status"]["conditions"] = [{"type": done, "status": "True", "reason": "Done", "message": ""}]

    followed = follow(launcher, job, play)
    assert followed.status.phase is JobPhase.SUCCEEDED
    assert seen == [(JobPhase.PENDING, 0), (JobPhase.RUNNING, 1), (JobPhase.SUCCEEDED, 1)]
    assert [json.loads(line) for line in (job.folder / "events.jsonl").read_text().splitlines()] == [
        json.loads(STEP)
    ]
    assert "default0" in (job.folder / "logs" / "node-0.log").read_text()


def test_a_cancelled_job_is_over_when_its_pods_are(cluster: FakeKubernetes, job: LaunchJob) -> None:
    launcher = KubernetesLauncher(poll_s=0.02)
    job_id = submit_once(launcher, job)
    cluster.add_pod("planner-tiny", 0)
    with pytest.raises(LaunchFailed, match=r"planner-tiny is still ending 0 s after"):
        cancel_and_wait(launcher, job, job_id, seconds=0.1)
    cluster.pods[0]["status"]["phase"] = "Succeeded"
    assert cancel_and_wait(launcher, job, job_id, seconds=1).phase is JobPhase.CANCELLED
    assert not cluster.objects


def test_what_the_server_refuses_is_said(cluster: FakeKubernetes, job: LaunchJob) -> None:
    cluster.refuse = "jobsets is forbidden: no rights"
    with pytest.raises(LaunchFailed, match=r"answered 403: jobsets is forbidden"):
        submit_once(KubernetesLauncher(), job)


def test_no_cluster_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "none"))
    with pytest.raises(LauncherMissing, match=r"no Kubernetes cluster is configured here; set KUBECONFIG"):
        KubernetesLauncher().check()


def test_log_lines_are_kept_once(tmp_path: Path) -> None:
    first = "2026-01-01T00:00:01Z one\n"
    keep_lines(tmp_path, PodLog(1, "pod", first))
    keep_lines(tmp_path, PodLog(1, "pod", first + "2026-01-01T00:00:02Z two\n"))
    assert (tmp_path / "logs" / "node-1.log").read_text() == "one\ntwo\n"


def test_files_that_no_config_map_holds_are_refused(tmp_path: Path) -> None:
    (tmp_path / "large.json").write_text("x" * 1_000_001)
    with pytest.raises(BadInput, match=r"1,000,001 bytes, a ConfigMap holds 1,000,000"):
        files_of(tmp_path, ("large.json",))
