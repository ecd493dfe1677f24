"""One question that takes seconds, in a process of its own: `python -m api.questions`, JSON lines over pipes.

Standard input: one line `{"kind", "request", "stored"}`; then it stays open, and its end means that whoever asked is
gone. Standard output: one line, `{"answer": …}` or `{"problem": …}` as planner.worker writes it, whose options it has.
"""

import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final

from api.questions.accuracy import accuracy
from api.questions.explanations import ExplanationRequest, explain
from api.questions.sizes import SizesRequest, size_table
from cost_models.errors import BadInput
from planner.answers import finite
from planner.worker import INTERNAL_ERROR, MEMORY_LIMIT, limit_process, problem_of

Question = Mapping[str, Any]
ANSWERS: Final[Mapping[str, Callable[[Question], dict[str, Any]]]] = {
    "accuracy": lambda question: accuracy(),
    "explanation": lambda question: explain(
        ExplanationRequest.model_validate(question["request"]), question["stored"]
    ),
    "sizes": lambda question: size_table(SizesRequest.model_validate(question["request"])),
}
"""Kinds of questions, which take seconds."""


def main() -> None:
    """Answer the question on standard input."""
    limit_process("api.questions", sys.argv[1:])
    # Whatever a library prints must not end up between the JSON lines.
    answers, sys.stdout = sys.stdout, sys.stderr
    line = sys.stdin.readline()
    threading.Thread(target=_end_with_input, daemon=True).start()
    answers.write(json.dumps(finite(_answer(line)), allow_nan=False) + "\n")
    answers.flush()


def _answer(line: str) -> dict[str, Any]:
    try:
        question = json.loads(line)
        return {"answer": ANSWERS[question["kind"]](question)}
    except BadInput as error:
        return {"problem": problem_of(error)}
    except MemoryError:
        detail = "the answer ran out of memory; ask for less, or give the server more"
        return {"problem": {"code": MEMORY_LIMIT, "detail": detail, "pointer": "", "allowed": []}}
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        detail = f"{type(error).__name__} in the answer; this is a bug of the planner"
        return {"problem": {"code": INTERNAL_ERROR, "detail": detail, "pointer": "", "allowed": []}}


def _end_with_input() -> None:
    """Wait for the end of standard input, then leave without asking the search."""
    while sys.stdin.read(1):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
