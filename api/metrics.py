"""Counts for Prometheus: requests and their seconds by route, and gauges that parts of the server bring."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

PREFIX: Final = "planner_"
BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
METHODS: Final = frozenset({"GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS"})
"""Other methods count as one, so that nobody can make up series."""


class Metrics:
    """The registry of one application; nothing is shared between two of them."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            f"{PREFIX}http_requests", "Answers", ("method", "route", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            f"{PREFIX}http_request_seconds",
            "Seconds until the answer's end",
            ("route",),
            buckets=BUCKETS_S,
            registry=self._registry,
        )
        self._under_way = Gauge(f"{PREFIX}http_under_way", "Requests under way", registry=self._registry)

    @contextmanager
    def under_way(self) -> Iterator[None]:
        """Count a request as under way."""
        with self._under_way.track_inprogress():
            yield

    def note(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer; a client that went away before it began has status 0."""
        self._requests.labels(method if method in METHODS else "other", route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def watch(
        self, name: str, text: str, value: Callable[[], float], labels: dict[str, str] | None = None
    ) -> None:
        """A gauge whose value is asked for when metrics are read; labels have one fixed value each."""
        gauge = Gauge(f"{PREFIX}{name}", text, tuple(labels or ()), registry=self._registry)
        (gauge.labels(**labels) if labels else gauge).set_function(value)

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)
