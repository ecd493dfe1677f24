"""What a command answers: a JSON object and a way to show it to people; printed in one place only."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass

YES = 0
NO = 1
BAD_INPUT = 2
INTERNAL_ERROR = 3
INTERRUPTED = 130
BROKEN_PIPE = 141
TERMINATED = 143


@dataclass(frozen=True, slots=True)
class Answer:
    """The JSON object of a command, how people see it, and the exit code (0 yes, 1 no)."""

    payload: Mapping[str, object]
    show: Callable[[], None]
    as_json: bool = False
    exit_code: int = YES


def print_answer(answer: Answer) -> None:
    """Write the answer to standard output: exactly one JSON object, or what people read."""
    if answer.as_json:
        print_json(answer.payload)
    else:
        answer.show()
    sys.stdout.flush()


def print_json(payload: Mapping[str, object]) -> None:
    """One JSON object on standard output, ASCII only, non-finite numbers null."""
    import json

    from planner.answers import finite

    sys.stdout.write(json.dumps(finite(dict(payload)), allow_nan=False) + "\n")
