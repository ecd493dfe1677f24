"""What `make audit` says of a database's answers: clean, weak, or that nothing could be asked."""

import json
from typing import Any

import pytest

from tests.deploy.audit import CLEAN, FOUND, UNREACHED, Answer, answer_of, verdict, withdrawn

GOOD = {"name": "a", "version": "1", "vulns": []}
WEAK = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"], "aliases": []}]}
LOST = {"name": "c", "skip_reason": "not found"}
AWAY = "Traceback ...\nConnectionError: no such host\n"


def said(*packages: dict[str, Any]) -> Answer:
    return answer_of(json.dumps({"dependencies": packages, "fixes": []}), "")


@pytest.mark.parametrize(
    ("answers", "code", "words"),
    [
        ({"pypi": said(GOOD)}, CLEAN, "nothing is known against the pins (pypi)"),
        ({"pypi": said(GOOD, WEAK)}, FOUND, "b 2: PYSEC-1; fixed in 2.1"),
        ({"pypi": said(GOOD, LOST)}, FOUND, "c: in no database"),
        ({"pypi": said(LOST), "osv": said(GOOD)}, CLEAN, "(osv)"),
        ({"pypi": said(LOST), "osv": answer_of("", AWAY)}, UNREACHED, "nothing was checked"),
        ({"pypi": answer_of("", AWAY), "osv": said(WEAK)}, FOUND, "PYSEC-1"),
    ],
)
def test_the_exit_code_tells_clean_from_unchecked(answers: dict[str, Answer], code: int, words: str) -> None:
    found, lines = verdict(answers)
    assert found == code
    assert words in "\n".join(lines)


def test_a_database_that_is_away_says_so() -> None:
    assert answer_of("", AWAY).failure == "ConnectionError: no such host"
    assert "none of the 1 packages" in said(LOST).failure


def test_withdrawn_pins_are_named() -> None:
    metadata = {"name": "a", "version": "1"}
    report = {
        "install": [{"metadata": metadata, "is_yanked": True}, {"metadata": metadata, "is_yanked": False}]
    }
    assert withdrawn(report) == ["a 1: withdrawn from the index"]
