"""Every direct requirement is pinned, and the pin lies in the range that pyproject.toml promises."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
REQUIREMENTS = sorted({*PROJECT["dependencies"], *(text for extra in EXTRAS.values() for text in extra)})


def pins() -> dict[str, str]:
    """Name -> exact version, from constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in pairs}


@pytest.mark.parametrize("text", REQUIREMENTS)
def test_requirement_is_pinned_inside_its_range(text: str) -> None:
    requirement = Requirement(text)
    pin = pins()[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(pin)
    lower = {"==", ">="}  # a release pinned on purpose is its own lower bound
    assert any(clause.operator in lower for clause in requirement.specifier), "a lower bound is missing"


def test_extras_are_the_promised_ones() -> None:
    extras = {"server", "client", "kubernetes", "torch", "transformers", "dev", "docs", "report"}
    assert set(EXTRAS) == extras


def test_torch_is_the_release_the_checks_ran_with() -> None:
    assert pins()["torch"] == "2.13.0"
