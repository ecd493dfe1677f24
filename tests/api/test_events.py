"""Events of a plan: order, kinds, attempts, bounds that never worsen, where a reader left off, the keep-alive."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from api.routes import events as route
from api.store import Database
from api.store.changes import Event
from api.store.watch import Feed, Watch


@pytest.fixture(scope="module")
def stepping(serve: Callable[..., Any]) -> Iterator[TestClient]:
    with serve("steps") as client:
        yield client


def read(client: TestClient, path: str, after: int | None = None) -> list[dict[str, Any]]:
    """All events of a stream until it ends."""
    headers = {} if after is None else {"last-event-id": str(after)}
    answer = client.get(path, headers=headers)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    found = []
    for block in answer.text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if fields:
            found.append({"id": int(fields["id"]), "event": fields["event"], **json.loads(fields["data"])})
    return found


def test_a_reader_sees_everything_in_order(stepping: TestClient, question: dict[str, Any]) -> None:
    plan = stepping.post("/v1/plans", json=question, headers={"prefer": "wait=0"}).json()
    found = read(stepping, plan["links"]["events"])  # live: it ends with the plan
    assert [event["id"] for event in found] == list(range(1, len(found) + 1))
    assert {event["attempt"] for event in found} == {1}
    assert {event["event"] for event in found} == {"state", "progress", "incumbent", "end"}
    assert [e["state"] for e in found if e["event"] == "state"] == ["queued", "running", "succeeded"]
    assert (found[-1]["event"], found[-1]["status"]) == ("end", "infeasible")
    # The worker said (1, 4), (2, 3) and then the worse (1.5, 3.5).
    bounds = [
        (e["lower_bound_s"], e["best_step_s"]) for e in found if e["event"] in ("progress", "incumbent")
    ]
    assert bounds == sorted(bounds, key=lambda pair: (pair[0], -pair[1]))
    assert (found[-1]["lower_bound_s"], found[-1]["best_step_s"]) == (2.0, 3.0)
    later = read(stepping, plan["links"]["events"], after=3)
    assert later == found[3:]
    everything = stepping.get(plan["links"]["events"], headers={"last-event-id": str(len(found))})
    assert (everything.status_code, everything.text) == (204, "")
    bad = stepping.get(plan["links"]["events"], headers={"last-event-id": "first"})
    assert bad.status_code == 422


def test_a_cancelled_plan_ends_its_readers(stepping: TestClient, question: dict[str, Any]) -> None:
    plan = stepping.post("/v1/plans", json=question, headers={"prefer": "wait=0"}).json()
    stepping.post(plan["links"]["cancel"])
    found = read(stepping, plan["links"]["events"])
    assert (found[-1]["event"], found[-1]["state"]) == ("end", "cancelled")


def test_silence_is_broken_by_a_comment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(route, "KEEP_ALIVE_S", 0.01)
    database = Database(None, None)
    watch = Watch(database)

    async def allowed() -> bool:
        return True

    async def story() -> list[bytes]:
        stream = route.stream(watch, "plan_none", 0, allowed)
        said = [await anext(stream) for _ in range(2)]
        watch.close()  # the server stops: the stream ends
        said += [piece async for piece in stream]
        return said

    assert set(asyncio.run(story())) == {b": keep-alive\n\n"}
    database.close()


def test_a_feed_gives_what_is_later() -> None:
    feed = Feed([Event(number, "progress", 1, "{}") for number in range(1, 6)])
    assert [event.number for event in feed.after(0)] == [1, 2, 3, 4, 5]
    assert [event.number for event in feed.after(3)] == [4, 5]
    assert feed.after(5) == []
    assert feed.after(99) == []
