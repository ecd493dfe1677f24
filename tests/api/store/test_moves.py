"""States of a plan: which moves are legal, and that no other happens in the database, whoever asks."""

import itertools
from pathlib import Path

import pytest

from api.store import Database
from api.store.changes import events_after, move
from api.store.moves import LEGAL_MOVES, State
from api.store.plans import NewPlan, Plans, erase
from api.store.tables import plans

LEGAL = {
    ("queued", "running"),
    ("queued", "cancelled"),
    ("queued", "failed"),
    ("running", "succeeded"),
    ("running", "failed"),
    ("running", "cancelled"),
    ("running", "queued"),  # recovery
}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Database:
    return Database(None, tmp_path_factory.mktemp("moves"))


def plan_in(database: Database, state: str) -> str:
    """A plan that stands in a state, whichever way it came there."""
    plan_id = f"plan_{state}"
    with database.write() as connection:
        erase(connection, [f"plan_{state}" for state in State])
    Plans(database, 10).create(NewPlan(plan_id, None, (), None, None, "{}", ""), None)
    with database.write() as connection:
        connection.execute(plans.update().values(state=state))
    return plan_id


@pytest.mark.parametrize(("before", "after"), [*itertools.product(State, State)])
def test_only_the_contracts_moves_happen(database: Database, before: State, after: State) -> None:
    plan_id = plan_in(database, before)
    with database.write() as connection:
        moved = move(connection, plan_id, after, {})
        state = connection.execute(plans.select()).one().state
    assert (moved is not None) == ((before, after) in LEGAL)
    assert state == (after if (before, after) in LEGAL else before)


def test_the_table_is_the_contracts() -> None:
    assert {(a.value, b.value) for a, targets in LEGAL_MOVES.items() for b in targets} == LEGAL
    assert {state.value for state in State if state.is_final} == {"succeeded", "failed", "cancelled"}


def test_events_are_numbered_without_holes(tmp_path: Path) -> None:
    database = Database(None, tmp_path)
    Plans(database, 10).create(NewPlan("plan_a", None, (), None, None, "{}", ""), None)
    with database.write() as connection:
        for state in (State.RUNNING, State.QUEUED, State.RUNNING, State.SUCCEEDED, State.RUNNING):
            move(connection, "plan_a", state, {"result": '{"status": "optimal"}'})
        found = events_after(connection, "plan_a", 0)
        later = events_after(connection, "plan_a", 4)
    # queued, running, queued, running, succeeded and its end; the move from a final state left no trace.
    assert [event.number for event in found] == [1, 2, 3, 4, 5, 6]
    assert [event.kind for event in found] == ["state"] * 5 + ["end"]
    assert '"status": "optimal"' in found[-1].data
    assert [event.number for event in later] == [5, 6]
    database.close()
