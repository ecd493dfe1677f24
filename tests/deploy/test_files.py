"""Dockerfiles, compose file and Kubernetes manifests: valid, locked down, and asking the server for what it knows."""

import re
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from api.server import command
from planner.executor.launch.job import LaunchJob
from planner.executor.launch.kubernetes.manifest import manifests
from planner.executor.launch.kubernetes.options import KubernetesOptions
from tests.deploy.kubernetes_models import faults

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILES = ("Dockerfile", "Dockerfile.torch")
MANIFESTS = ("deployment.yaml", "service.yaml", "disruption.yaml", "runs.yaml")


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / name).read_text()))


def deployment() -> dict[str, Any]:
    return documents("deployment.yaml")[0]


def compose() -> dict[str, Any]:
    values: dict[str, Any] = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())
    return values


@pytest.mark.parametrize("name", DOCKERFILES)
def test_images_take_a_base_and_run_as_a_number(name: str) -> None:
    lines = (ROOT / "docker" / name).read_text().splitlines()
    words = [line.split() for line in lines if line and not line.startswith(("#", " "))]
    assert words[0][:1] == ["ARG"]
    assert words[0][1].startswith("BASE=")
    assert all(line[1] == "${BASE}" for line in words if line[0] == "FROM")
    assert [line[1] for line in words if line[0] == "USER"][-1] == "1000:1000"


def test_no_file_names_a_registry() -> None:
    folders = (ROOT / "docker", ROOT / "deploy")
    texts = {path: path.read_text() for folder in folders for path in folder.rglob("*") if path.is_file()}
    assert texts
    for path, text in texts.items():
        assert not re.search(
            r"(docker|ghcr|quay|gcr|pypi|nvcr|registry)\.(io|org|com)/|https?://(?!127)", text
        ), path


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifests_hold_against_the_client_s_models(name: str) -> None:
    for manifest in documents(name):
        assert faults(manifest["kind"], manifest) == []


def test_a_wrong_manifest_is_found() -> None:
    wrong = deployment()
    container = wrong["spec"]["template"]["spec"]["containers"][0]
    container["livenesProbe"] = container.pop("livenessProbe")
    container["ports"][0]["containerPort"] = "8000"
    del wrong["spec"]["selector"]
    found = "\n".join(faults("Deployment", wrong))
    for words in ("livenesProbe", "containerPort", "selector"):
        assert words in found


@pytest.mark.parametrize("kind", ["jobset"])
def test_pods_of_runs_hold_against_the_client_s_models(kind: str) -> None:
    job = LaunchJob("planner-x", ROOT, "run.sh", 2, 8, False, comment="x")
    options = KubernetesOptions(kind="jobset", claim="c", service_account="s", memory="9Gi", topology="rack")
    files, work = manifests(job, options, {"run.sh": "x"})
    pod = work["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert faults("ConfigMap", files) == []
    assert faults("PodSpec", pod) == []


def test_the_kustomization_names_the_files() -> None:
    values = yaml.safe_load((ROOT / "deploy" / "kubernetes" / "kustomization.yaml").read_text())
    assert set(values["resources"]) | {"runs.yaml"} == set(MANIFESTS)


def test_pods_are_locked_down() -> None:
    pod = deployment()["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not pod["automountServiceAccountToken"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_probes_ask_what_the_server_answers() -> None:
    container = deployment()["spec"]["template"]["spec"]["containers"][0]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for probe, path in (
        ("startupProbe", "/healthz"),
        ("livenessProbe", "/healthz"),
        ("readinessProbe", "/readyz"),
    ):
        assert container[probe]["httpGet"] == {"path": path, "port": "http"}
    assert options_of(container["args"])["port"] == ports["http"] == 8000
    assert documents("service.yaml")[0]["spec"]["ports"][0]["targetPort"] == "http"
    budget = documents("disruption.yaml")[0]["spec"]
    assert budget["minAvailable"] < deployment()["spec"]["replicas"]
    assert (
        budget["selector"]
        == deployment()["spec"]["selector"]
        == {"matchLabels": documents("service.yaml")[0]["spec"]["selector"]}
    )


def test_pods_have_time_to_drain() -> None:
    pod = deployment()["spec"]["template"]["spec"]
    assert options_of(pod["containers"][0]["args"])["drain_seconds"] < pod["terminationGracePeriodSeconds"]


def test_compose_runs_two_locked_servers_over_one_database() -> None:
    services = compose()["services"]
    server, database = services["server"], services["database"]
    assert server["deploy"]["replicas"] == 2
    assert server["read_only"]
    assert server["user"] == "1000:1000"
    assert server["cap_drop"] == ["ALL"]
    assert server["depends_on"] == {"database": {"condition": "service_healthy"}}
    assert (ROOT / "docker" / server["build"]["context"] / server["build"]["dockerfile"]).is_file()
    named = {volume.partition(":")[0] for service in (server, database) for volume in service["volumes"]}
    assert named == set(compose()["volumes"])
    assert set(server["secrets"]) == set(compose()["secrets"])
    options = options_of(server["command"][1:])
    assert options["database"] == "postgresql://planner@database/planner"
    assert options["drain_seconds"] < float(server["stop_grace_period"].removesuffix("s"))
    # The password is asked for, not written down.
    for service in (server, database):
        secret = [value for key, value in service["environment"].items() if "PASSWORD" in key]
        assert secret == ["${DATABASE_PASSWORD:?set DATABASE_PASSWORD}"]


def options_of(arguments: list[str]) -> dict[str, Any]:
    """The server's options, read as it reads them."""
    assert isinstance(command, click.Group)
    return command.make_context("planner-server", list(arguments)).params
