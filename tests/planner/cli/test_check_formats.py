"""The formats that CI systems read are well formed and say what failed."""

import json
from typing import Any
from xml.etree import ElementTree

import pytest

FAILING = "--strategy tp=2 --max-memory-fraction 0.01 --output-format"


def test_text(run: Any, job: str) -> None:
    outcome = run(f"check {job} {FAILING} text")
    assert outcome.code == 1
    assert outcome.out.startswith("fail")


def test_github_annotations_are_one_a_line(run: Any, job: str) -> None:
    outcome = run(f"check {job} {FAILING} github")
    assert outcome.code == 1
    lines = outcome.out.splitlines()
    assert all(line.startswith(("::error ", "::warning ", "::notice ")) for line in lines)
    # A percent sign starts an escape in these commands.
    assert "at most 1.0%25 was asked for" in lines[0]


@pytest.mark.parametrize(("options", "failures"), [(FAILING, 1), ("--strategy tp=2 --output-format", 0)])
def test_junit(run: Any, job: str, options: str, failures: int) -> None:
    outcome = run(f"check {job} {options} junit")
    assert outcome.code == failures
    suite = ElementTree.fromstring(outcome.out)
    assert suite.attrib["failures"] == str(failures)
    assert len(suite.findall("testcase/failure")) == failures


def test_sarif(run: Any, job: str) -> None:
    log = json.loads(run(f"check {job} {FAILING} sarif").out)
    assert log["version"] == "2.1.0"
    (result,) = [r for r in log["runs"][0]["results"] if r["level"] == "error"]
    assert result["ruleId"] == "check-failed"
    rules = {rule["id"] for rule in log["runs"][0]["tool"]["driver"]["rules"]}
    assert result["ruleId"] in rules


def test_markdown(run: Any, job: str) -> None:
    text = run(f"check {job} {FAILING} markdown").out
    assert "| answer | **fail** |" in text
    assert "- fails: " in text
