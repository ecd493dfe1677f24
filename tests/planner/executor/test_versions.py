"""A torch that is missing or too old is said before anything is started."""

import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from cost_models.errors import BadInput
from planner.executor import versions
from planner.executor.versions import LEAST_TORCH, check_torch


def test_the_least_torch_is_the_extras() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    wanted = f"torch>={LEAST_TORCH[0]}.{LEAST_TORCH[1]}"
    assert wanted in project["project"]["optional-dependencies"]["torch"]


@pytest.mark.parametrize("found", ["2.10.0", "2.13.0+cpu", "3.0.0a0+git1"])
def test_a_torch_that_is_new_enough_is_taken(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "version", lambda name: found)
    check_torch()


@pytest.mark.parametrize("found", ["2.9.1", "1.13", "unknown"])
def test_an_old_torch_is_named(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "version", lambda name: found)
    with pytest.raises(BadInput, match=f"torch {found} is installed, and running a plan needs 2.10"):
        check_torch()


def test_a_broken_torch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise OSError("libcudart.so.12: cannot open shared object file")

    monkeypatch.setattr(versions, "import_module", broken)
    with pytest.raises(BadInput, match=r"cannot be imported \(libcudart.so.12: cannot open"):
        check_torch()


def test_a_missing_torch_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(versions, "version", missing)
    with pytest.raises(BadInput, match=r"install parallelism-planner\[torch\]"):
        check_torch()
