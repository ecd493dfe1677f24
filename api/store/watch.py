"""Who waits for plans: one thread reads new events for all readers of this server, and wakes them.

A plan that this server searches says so at once; another server's events are found by looking, `POLL_S` apart.
"""

import asyncio
import logging
import threading
from typing import Final

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from api.errors import Problem
from api.store.changes import END, Event, events_after
from api.store.database import Database
from api.store.tables import plans

POLL_S: Final = 0.2
AT_ONCE: Final = 8
BETWEEN_S: Final = 0.01
"""Readers of one plan that are woken together, and the time until the next ones are."""

log = logging.getLogger("api")


class Feed:
    """The events of one plan, in order, shared by its readers."""

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self.num_readers = 0
        self.is_closed = False

    @property
    def last(self) -> int:
        """Number of the newest event."""
        return self.events[-1].number if self.events else 0

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will come."""
        return self.is_closed or bool(self.events and self.events[-1].kind == END)

    def after(self, number: int) -> list[Event]:
        """Events later than one of them; numbers have no holes and begin with 1."""
        return self.events[max(0, number - self.last + len(self.events)) :]

    async def wait(self, number: int, timeout_s: float) -> bool:
        """Wait for an event after a number, or the end; False at the timeout."""
        waiting = (asyncio.get_running_loop(), asyncio.Event())
        self._waiting.add(waiting)
        try:
            if self.last <= number and not self.has_ended:
                await asyncio.wait_for(waiting[1].wait(), timeout_s)
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(waiting)
        return True

    def wake(self) -> None:
        """Wake everybody who waits, in turn; called from the watching thread."""
        sleepers: dict[asyncio.AbstractEventLoop, list[asyncio.Event]] = {}
        for loop, event in list(self._waiting):
            sleepers.setdefault(loop, []).append(event)
        for loop, events in sleepers.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(_wake_in_turn, loop, events)


def _wake_in_turn(loop: asyncio.AbstractEventLoop, events: list[asyncio.Event]) -> None:
    """Wake a few readers, and the next ones in a moment: hundreds at once would hold up every other request."""
    for event in events[:AT_ONCE]:
        event.set()
    if len(events) > AT_ONCE:
        loop.call_later(BETWEEN_S, _wake_in_turn, loop, events[AT_ONCE:])


class Watch:
    """The feeds of a server; the thread runs while there are readers."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._feeds: dict[str, Feed] = {}
        self._changed = threading.Condition()
        self._told = False
        self._is_running = False
        self._is_closed = False

    def join(self, plan_id: str) -> Feed:
        """The feed of a plan, until `leave`; blocks, as it may ask the database first."""
        with self._changed:
            feed = self._feeds.get(plan_id)
        if feed is None:
            with self._database.read() as connection:
                feed = Feed(events_after(connection, plan_id, 0))
        with self._changed:
            feed = self._feeds.setdefault(plan_id, feed)
            feed.num_readers += 1
            feed.is_closed = feed.is_closed or self._is_closed
            self._start()
        return feed

    def leave(self, plan_id: str, feed: Feed) -> None:
        """A reader has read enough."""
        with self._changed:
            feed.num_readers -= 1
            if feed.num_readers == 0 and self._feeds.get(plan_id) is feed:
                del self._feeds[plan_id]

    def tell(self) -> None:
        """Something was written here: look now."""
        with self._changed:
            self._told = True
            self._changed.notify()

    def close(self) -> None:
        """End every feed; the server stops."""
        with self._changed:
            self._is_closed = True
            feeds = list(self._feeds.values())
            self._changed.notify()
        for feed in feeds:
            feed.is_closed = True
            feed.wake()

    def _start(self) -> None:
        if not self._is_running and not self._is_closed:
            self._is_running = True
            threading.Thread(target=self._look_on, name="watch", daemon=True).start()

    def _look_on(self) -> None:
        while True:
            with self._changed:
                if not self._told:
                    self._changed.wait(POLL_S)
                self._told = False
                if self._is_closed or not self._feeds:
                    self._is_running = False
                    return
                feeds = dict(self._feeds)
            try:
                self._look(feeds)
            except (SQLAlchemyError, Problem) as error:
                log.warning("events cannot be read (%s); trying again", type(error).__name__)

    def _look(self, feeds: dict[str, Feed]) -> None:
        open_feeds = {plan_id: feed for plan_id, feed in feeds.items() if not feed.has_ended}
        if not open_feeds:
            return
        with self._database.read() as connection:
            newest = select(plans.c.id, plans.c.last_event).where(plans.c.id.in_(open_feeds))
            numbers = {row.id: row.last_event for row in connection.execute(newest)}
            for plan_id, feed in open_feeds.items():
                if plan_id not in numbers:
                    feed.is_closed = True  # deleted
                elif numbers[plan_id] > feed.last:
                    feed.events.extend(events_after(connection, plan_id, feed.last))
                else:
                    continue
                feed.wake()
