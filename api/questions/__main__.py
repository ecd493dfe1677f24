"""One question that takes seconds, in a process of its own: `python -m api.questions`, JSON lines over pipes.

Standard input: one line `{"kind", "request", "stored"}`; then it stays open, and its end means that whoever asked is
gone. Standard output: one line, `{"answer": …}` or `{"problem": …}` as planner.worker writes it.
"""

import json
import os
import sys
import threading
import traceback
from typing import Any

from api.questions.accuracy import accuracy
from api.questions.explanations import ExplanationRequest, explain
from cost_models.errors import BadInput
from planner.answers import finite
from planner.worker import INTERNAL_ERROR, problem_of


def main() -> None:
    """Answer the question on standard input."""
    # Whatever a library prints must not end up between the JSON lines.
    answers, sys.stdout = sys.stdout, sys.stderr
    line = sys.stdin.readline()
    threading.Thread(target=_end_with_input, daemon=True).start()
    answers.write(json.dumps(finite(_answer(line)), allow_nan=False) + "\n")
    answers.flush()


def _answer(line: str) -> dict[str, Any]:
    try:
        question = json.loads(line)
        if question["kind"] == "accuracy":
            return {"answer": accuracy()}
        request = ExplanationRequest.model_validate(question["request"])
        return {"answer": explain(request, question["stored"])}
    except BadInput as error:
        return {"problem": problem_of(error)}
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
