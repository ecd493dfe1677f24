"""Clusters of several device groups on the command line and over HTTP: files, defaults, refusals with the ways out."""

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.app import create_app
from api.settings import Settings

FILE = """
name = "old-and-new"
[[groups]]
name = "v100"
device = "v100-sxm2-32gb"
nodes = 1
devices_per_node = 8
[[groups]]
name = "a100"
device = "a100-sxm-80gb"
nodes = 1
devices_per_node = 8
[[groups]]
name = "l4"
device = "l4"
nodes = 1
devices_per_node = 4
[[tiers]]
name = "nvlink"
bytes_per_s = 150e9
latency_s = 2e-6
[[tiers]]
name = "ethernet"
bytes_per_s = 12.5e9
latency_s = 20e-6
"""


@pytest.fixture
def cluster(tmp_path) -> str:
    path = tmp_path / "mixed.toml"
    path.write_text(FILE)
    return str(path)


@pytest.fixture
def ask(run, cluster):
    """`planner COMMAND` on the cluster with a small job."""

    def asked(command: str, *more: str):
        words = [
            command,
            "--model",
            "llama-3.2-1b",
            "--cluster",
            cluster,
            "--seq-len",
            "2048",
            "--global-batch",
            "32",
        ]
        return run([*words, *more])

    return asked


@pytest.mark.parametrize(
    ("given", "groups"),
    [
        # 8 + 8 + 4 devices: five ranks of 4 make the groups up, one rank lies on all of them.
        ("tp=4,pp=5", "v100*2+a100*2+l4*1"),
        ("pp=1,mbs=1,groups=a100", "a100*1"),
        ("tp=2,pp=4,groups=a100+v100", "a100*2+v100*2"),
        ("tp=4,pp=2,groups=a100/v100", "v100/a100*2"),
        ("tp=8,pp=2,groups=v*1+a*1", "v100*1+a100*1"),
    ],
)
def test_the_groups_of_ranks_are_echoed(ask, given, groups):
    outcome = ask("evaluate", "--precision", "fp16", "--strategy", given, "--json")
    assert outcome.code in (0, 1), outcome.err
    strategy = json.loads(outcome.out)["strategy"]
    assert strategy["groups"] == groups
    stages = json.loads(outcome.out)["memory"]["stages"]
    assert {stage["group"] for stage in stages} == {run.split("*")[0] for run in groups.split("+")}
    again = ask("evaluate", "--precision", "fp16", "--strategy", _text(strategy), "--json")
    assert json.loads(again.out)["strategy"] == strategy


def _text(strategy: dict[str, Any]) -> str:
    return ",".join(
        f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in strategy.items()
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("tp=4,pp=3,groups=a100*2+x*1", ["'x' is none of v100, a100, l4"]),
        ("tp=4,pp=3,groups=a100*1+v100*2", ["16 devices are not divisible", "pp=4 groups=a100*2+v100*2"]),
        ("tp=4,pp=4,groups=a100*1+v100*3", ["uses 4 of the 8 devices of a100", "pp=4 groups=a100*2+v100*2"]),
        ("tp=4,pp=4,groups=a100*1+v100*2+a100*1", ["passes through a100 2 times"]),
        ("tp=8,pp=2,groups=a100*1+l4*1", ["12 devices are not divisible", "use tp x cp 1, 2 or 4"]),
        (
            "tp=3,pp=2,dp=2,groups=a100*1+l4*1",
            ["8 devices of a100 do not make whole parts of tp x cp x dp = 6"],
        ),
        ("tp=4,pp=4,order=tp-cp-ep-pp-dp,groups=a100+v100", ["takes apart what lies on one device group"]),
        ("tp=4,pp=5,groups=a100/v100*4+l4*1", ["shares some ranks between groups and not others"]),
    ],
)
def test_what_cannot_lie_so_is_refused(ask, given, words):
    assert ask("evaluate", "--precision", "fp16", "--strategy", given).refused("illegal strategy", *words)


def test_a_group_without_the_precision_is_refused_by_name_and_left_out_by_itself(ask):
    outcome = ask("evaluate", "--strategy", "tp=8,pp=1,groups=v100")
    assert outcome.refused("precision bf16 does not run on Tesla V100", "groups of a100 or groups of l4")
    found = json.loads(ask("evaluate", "--strategy", "tp=4,pp=3", "--json").out)
    assert found["strategy"]["groups"] == "a100*2+l4*1"
    assert any("v100 are left unused: Tesla V100" in warning for warning in found["warnings"])


def test_a_precision_that_no_group_has_is_refused(ask):
    assert ask("evaluate", "--precision", "nvfp4", "--strategy", "tp=4,pp=5").refused("nvfp4 does not run on")


def test_one_kind_of_devices_takes_no_groups(run, job):
    assert run(f"evaluate {job} --strategy pp=2,groups=h100*2").refused("all devices of dgx-h100 are alike")
    assert run(f"plan {job} --pin groups=h100").refused("groups=h100 is no placement on dgx-h100")


def test_plans_can_be_pinned_to_a_placement(ask):
    pins = ["--pin", "tp=4", "--pin", "mbs=1", "--pin", "recompute=none", "--top-k", "0", "--json"]
    found = json.loads(ask("plan", "--pin", "groups=l4+a100", *pins).out)
    assert found["best"]["strategy"]["groups"] == "l4*1+a100*2"
    assert found["status"] == "optimal"
    assert found["certificate"]["space"]["groups"] == ["l4+a100"]
    assert ask("plan", "--pin", "groups=v100").refused("groups=v100 is no placement", "l4+a100")
    assert ask("plan", "--pin", "groups=a100*2").refused("name the groups alone")


def test_the_catalog_shows_a_file_of_groups(run, cluster):
    shown = run(["catalog", "clusters", cluster]).out
    for words in ("8 x v100-sxm2-32gb", "4 x l4", "v100 - a100", "12.5 GB/s a device"):
        assert words in shown
    found = json.loads(run(["catalog", "clusters", cluster, "--json"]).out)
    assert (found["devices"], found["group_names"]) == (20, ["v100", "a100", "l4"])
    assert found["between"][0]["latency_s"] == 20e-6


def test_http_takes_the_same_cluster_and_strategy():
    tiers = [
        {"name": "nvlink", "bytes_per_s": 3e11, "latency_s": 2e-6},
        {"name": "infiniband", "bytes_per_s": 2.5e10, "latency_s": 4e-6},
    ]
    groups = [
        {"name": name, "device": f"{name}-sxm-80gb", "nodes": 1, "devices_per_node": 8}
        for name in ("a100", "h100")
    ]
    body = {
        "model": {"kind": "catalog", "name": "llama-3.2-1b"},
        "cluster": {"kind": "spec", "spec": {"name": "mixed", "groups": groups, "tiers": tiers}},
        "job": {"seq_len": 2048, "global_batch": 32},
        "strategies": [{"tp": 4, "pp": 4, "groups": "a100*2+h100*2"}, {"tp": 4, "pp": 4, "groups": "a100*4"}],
    }
    with TestClient(create_app(Settings(max_body_bytes=100_000)), base_url="http://127.0.0.1:8000") as client:
        answer = client.post("/v1/evaluations", json=body)
    assert answer.status_code == 200, answer.text
    first, second = answer.json()["items"]
    assert first["evaluation"]["strategy"]["groups"] == "a100*2+h100*2"
    assert "pp=2 groups=a100*2" in json.dumps(second)
