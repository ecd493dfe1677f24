"""One search in a process of its own: `python -m planner.worker`, JSON lines over pipes.

Standard input: one line with a PlanRequest; then it stays open. Its end means that whoever asked is gone, and
the process ends at once. Standard output: lines `{"progress": …}` and, last, `{"document": …}` (the plan
document) or `{"problem": {code, detail, pointer, allowed, violations}}`. Options: `--address-bytes`, `--nice`.
"""

import argparse
import json
import os
import resource
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Any, TextIO

from pydantic import ValidationError

from cost_models.errors import BadInput, IllegalStrategy
from planner.answers import Progress, finite
from planner.plan_file import plan_document
from planner.request import PlanRequest
from planner.search_request import check_search
from planner.situation import resolve

INTERNAL_ERROR = "internal_error"
MEMORY_LIMIT = "memory_limit"


def main() -> None:
    """Answer the request on standard input."""
    limit_process("planner.worker", sys.argv[1:])
    # Whatever a library prints must not end up between the JSON lines.
    answers, sys.stdout = sys.stdout, sys.stderr
    line = sys.stdin.readline()
    threading.Thread(target=_end_with_input, daemon=True).start()
    _write(answers, _answer(line, answers))


def limit_process(name: str, arguments: Sequence[str]) -> None:
    """Give way to others, and keep to the address space stated (the backstop behind whoever watches the memory)."""
    options = argparse.ArgumentParser(prog=name)
    options.add_argument("--address-bytes", type=int, help="most address space")
    options.add_argument("--nice", type=int, default=0, help="added to the niceness")
    given = options.parse_args(arguments)
    os.nice(given.nice)
    if given.address_bytes:
        resource.setrlimit(resource.RLIMIT_AS, (given.address_bytes, given.address_bytes))


def problem_of(error: BadInput) -> dict[str, object]:
    """What is wrong with a request, as plain data."""
    violations = error.violations if isinstance(error, IllegalStrategy) else ()
    return {
        "code": error.code,
        "detail": error.detail,
        "pointer": error.pointer,
        "allowed": list(error.allowed),
        "violations": [
            {"rule": v.rule, "detail": v.sentence(), "nearest": list(v.nearest), "source": v.source}
            for v in violations
        ],
    }


def _answer(line: str, answers: TextIO) -> dict[str, object]:
    def on_progress(progress: Progress) -> None:
        _write(answers, {"progress": _progress(progress)})

    try:
        request = PlanRequest.model_validate_json(line)
        check_search(request.search)
        situation = resolve(request.model, request.cluster, request.job)
        from planner.make_plan import make_plan

        result = make_plan(situation, request.search, on_progress)
        return {"document": plan_document(situation, request.search, result)}
    except BadInput as error:
        return {"problem": problem_of(error)}
    except ValidationError as error:
        return {"problem": problem_of(BadInput(f"{error.error_count()} keys of the request are wrong"))}
    except MemoryError:
        return {
            "problem": _problem(MEMORY_LIMIT, "the search ran out of memory; pin an axis or give it more")
        }
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        detail = f"{type(error).__name__} in the search; this is a bug of the planner"
        return {"problem": _problem(INTERNAL_ERROR, detail)}


def _problem(code: str, detail: str) -> dict[str, object]:
    return {"code": code, "detail": detail, "pointer": "", "allowed": []}


def _progress(progress: Progress) -> dict[str, Any]:
    return {
        "lower_bound_s": progress.lower_bound_s,
        "best_step_s": progress.best_step_s,
        "gap": progress.gap,
        "meshes_done": progress.meshes_done,
        "meshes_total": progress.meshes_total,
    }


def _write(answers: TextIO, message: dict[str, object]) -> None:
    answers.write(json.dumps(finite(message), allow_nan=False) + "\n")
    answers.flush()


def _end_with_input() -> None:
    """Wait for the end of standard input, then leave without asking the search."""
    while sys.stdin.read(1):
        pass
    os._exit(0)


if __name__ == "__main__":
    main()
