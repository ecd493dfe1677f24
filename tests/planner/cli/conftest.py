"""Runs command lines inside this process."""

import io
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from planner.cli.group import planner

JOB = "--model llama-3.2-1b --cluster dgx-h100:8 --seq-len 2048 --global-batch 32"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command line did."""

    code: int
    out: str
    err: str

    def refused(self, *words: str) -> bool:
        """Whether it was refused as bad input, cleanly and with these words."""
        clean = self.code == 2 and self.out == "" and "Traceback" not in self.err
        return clean and all(word in self.err for word in words)


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `planner` with arguments (text is split at spaces; a list is taken as it is) and standard input."""

    def outcome(arguments: str | list[str], stdin: bytes | None = None) -> Outcome:
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        words = arguments.split() if isinstance(arguments, str) else arguments
        with pytest.raises(SystemExit) as caught:
            planner.main(words)
        out, err = capsys.readouterr()
        return Outcome(int(caught.value.code or 0), out, err)

    return outcome


@pytest.fixture
def job() -> str:
    """Options of a small job that fits on one node."""
    return JOB
