"""Runs of real users' cases as parameters of a test; a known failure is a strict one, with its reason."""

from collections.abc import Mapping
from typing import Any

import pytest


def every_run(data: Mapping[str, Any]) -> list[Any]:
    """One parameter for every run of every case."""
    found = []
    for case in data["cases"]:
        for number, run in enumerate(case["runs"]):
            reason = run.get("known_failure")
            marks = [pytest.mark.xfail(strict=True, reason=reason)] if reason else []
            found.append(pytest.param(run, id=f"{case['id']}-{number}", marks=marks))
    return found
