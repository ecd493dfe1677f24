"""What is installed, which devices, which profiles: what works, what is missing, what is wrong."""

import json
import subprocess
from types import SimpleNamespace

import pytest

from planner import doctor
from planner.cli.group import planner
from planner.doctor import Finding, doctor_json, examine, is_healthy


def finding(name):
    return next(each for each in examine() if each.name == name)


def test_this_environment_is_healthy():
    found = examine()
    assert is_healthy(found)
    assert {"python", "ortools", "catalog"} <= {each.name for each in found if each.state == "ok"}
    assert doctor_json(found)["healthy"] is True


def test_a_missing_core_package_is_wrong_and_an_extra_only_missing(monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda name: "" if name in ("ortools", "kubernetes") else "1.0")
    found = {each.name: each for each in examine()}
    assert (found["ortools"].state, found["kubernetes"].state) == ("wrong", "missing")
    assert "parallelism-planner[kubernetes]" in found["kubernetes"].hint
    assert not is_healthy(tuple(found.values()))


def test_gpus_are_named_by_their_driver(monkeypatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: f"/usr/bin/{name}")
    lines = "NVIDIA H200, 143771 MiB\nNVIDIA H200, 143771 MiB\n"
    monkeypatch.setattr(doctor.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=lines))
    assert finding("GPU 1") == Finding("devices", "GPU 1", "ok", "NVIDIA H200, 143771 MiB")

    def broken(*_, **__):
        raise subprocess.TimeoutExpired("nvidia-smi", 20)

    monkeypatch.setattr(doctor.subprocess, "run", broken)
    assert "nvidia-smi failed" in finding("GPU").detail


@pytest.mark.parametrize("as_json", [True, False])
def test_the_command(capsys, as_json):
    with pytest.raises(SystemExit) as ended:
        planner.main(["doctor", *(["--json"] if as_json else [])])
    out = capsys.readouterr().out
    assert ended.value.code == 0
    assert json.loads(out)["healthy"] if as_json else "planning works here; next: planner plan" in out
