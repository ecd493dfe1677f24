"""A run moves along the contract's moves and no others, in the table and in the database."""

from itertools import product
from pathlib import Path

import pytest

from api.errors import Problem
from api.runs.states import LEGAL_MOVES, LIVE, RunState
from api.runs.store import NewRun, RunFilter, Runs
from api.store import Database
from tests.api.runs.conftest import store_plan

# queued launching running cancelling succeeded failed cancelled, and what may follow each.
MOVES = {
    "queued": {"launching", "cancelled", "failed"},
    "launching": {"running", "cancelling", "failed"},
    "running": {"succeeded", "cancelling", "failed"},
    "cancelling": {"cancelled", "failed"},
    "succeeded": set(),
    "failed": set(),
    "cancelled": set(),
}
WAYS = {
    "queued": (),
    "launching": ("launching",),
    "running": ("launching", "running"),
    "cancelling": ("launching", "cancelling"),
    "succeeded": ("launching", "running", "succeeded"),
    "failed": ("failed",),
    "cancelled": ("cancelled",),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    database = Database(None, tmp_path_factory.mktemp("data"))
    store_plan(database, {"request": {}, "result": {}}, id="plan_1")
    return Runs(database, 1000)


def made(runs: Runs, name: str, state: str) -> str:
    run_id = f"run_{name}"
    runs.create(NewRun(run_id, "plan_1", "local", "{}", "key_1", {}))
    for step in WAYS[state]:
        assert runs.move(run_id, RunState(step)) is not None
    return run_id


def test_the_table_is_the_contract() -> None:
    assert {source.value: {to.value for to in targets} for source, targets in LEGAL_MOVES.items()} == MOVES
    assert set(LIVE) == {source for source, targets in MOVES.items() if targets}


@pytest.mark.parametrize(("source", "to"), list(product(MOVES, MOVES)))
def test_only_legal_moves_change_a_run(runs: Runs, source: str, to: str) -> None:
    run_id = made(runs, f"{source}_{to}", source)
    before = runs.get(run_id)
    after = runs.move(run_id, RunState(to), {"failure_code": "x"})
    assert (after is not None) == (to in MOVES[source])
    assert before is not None
    if after is None:
        assert runs.get(run_id) == before
    else:
        assert (after.revision, after.failure_code) == (before.revision + 1, "x")
        assert (after.ended_at is not None) == (not MOVES[to])


@pytest.mark.parametrize("state", list(MOVES))
def test_cancelling_depends_on_the_state(runs: Runs, state: str) -> None:
    run_id = made(runs, f"cancel_{state}", state)
    if state in ("succeeded", "failed"):
        with pytest.raises(Problem, match=f"the run has {state}"):
            runs.cancel(run_id)
        return
    row, is_live = runs.cancel(run_id)
    assert row.state == ("cancelled" if state in ("queued", "cancelled") else "cancelling")
    assert is_live == (state != "cancelled")


def test_a_full_queue_sends_away(tmp_path: Path) -> None:
    database = Database(None, tmp_path)
    store_plan(database, {"request": {}, "result": {}}, id="plan_1")
    runs = Runs(database, 1)
    made(runs, "first", "queued")
    with pytest.raises(Problem, match="1 runs are queued already") as caught:
        made(runs, "second", "queued")
    assert caught.value.status_code == 429
    database.close()


def test_pages_hold_every_run_once(tmp_path: Path) -> None:
    database = Database(None, tmp_path)
    store_plan(database, {"request": {}, "result": {}}, id="plan_1")
    runs = Runs(database, 100)
    names = {made(runs, str(number), "queued") for number in range(7)}
    seen, cursor = [], None
    while True:
        page, cursor = runs.find(RunFilter(state="queued"), 3, cursor)
        seen += [row.id for row in page]
        if cursor is None:
            break
    assert (len(seen), set(seen)) == (7, names)
    assert runs.find(RunFilter(key_ids=("key_2",)), 3, None) == ([], None)
    database.close()
