"""One call of the integer solver, with its statuses kept apart."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from threading import Event, Thread
from time import monotonic

from ortools.sat.python import cp_model

from planner.search.space.effort import Effort

LOOKED_EVERY_S = 0.2
"""How often a running solver is asked to stop, if it should."""


class Answer(Enum):
    """What the solver proved: a relaxed choice reaches the target, none does, or it ran out of time."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class InvalidModelError(RuntimeError):
    """The solver refused the model: an error of this package."""


_ANSWERS = {
    cp_model.OPTIMAL: Answer.YES,
    cp_model.FEASIBLE: Answer.YES,
    cp_model.INFEASIBLE: Answer.NO,
    cp_model.UNKNOWN: Answer.UNKNOWN,
}


def run_solver(model: cp_model.CpModel, effort: Effort) -> tuple[Answer, cp_model.CpSolver]:
    """Solve within what is left of the time; with one worker, the same seed gives the same answer."""
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = effort.workers
    parameters.random_seed = effort.seed
    # [Empirical] Refuting 16 to 32 sizes under some 500 path cuts (OR-Tools 9.15, one core of a server of 2024) is
    # linear reasoning: all rows in the linear relaxation halve the time, symmetry and probing only cost some.
    parameters.linearization_level = 2
    parameters.symmetry_level = 0
    parameters.cp_model_probing_level = 0
    parameters.new_constraints_batch_size = 200
    parameters.max_time_in_seconds = max(0.0, effort.until - monotonic())
    with _watched(solver, effort):
        status = solver.solve(model)
    if status not in _ANSWERS:
        msg = f"the solver refused a model of {len(model.proto.constraints)} constraints: {model.validate()}"
        raise InvalidModelError(msg)
    return _ANSWERS[status], solver


@contextmanager
def _watched(solver: cp_model.CpSolver, effort: Effort) -> Iterator[None]:
    """While the solver runs, a thread asks `effort.stop` and ends the solver once it says yes."""
    ended = Event()

    def watch() -> None:
        while not ended.wait(LOOKED_EVERY_S):
            if effort.stop():
                solver.stop_search()

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
