"""Logs as JSON, one object a line on standard error, each with the id of the request that it belongs to."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

import structlog
from structlog.contextvars import bind_contextvars, merge_contextvars, reset_contextvars
from structlog.types import EventDict, Processor

QUIET: Final = ("uvicorn.access",)
"""Loggers whose lines the guard's own replace."""

_SHARED: Final[tuple[Processor, ...]] = (
    merge_contextvars,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.add_log_level,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
)


def configure_logs(level: int = logging.INFO, stream: TextIO | None = None) -> None:
    """Send everything that any library logs through one handler that writes JSON."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=(
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _plain,
                structlog.processors.format_exc_info,
                structlog.processors.EventRenamer("message"),
                structlog.processors.JSONRenderer(),
            ),
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in ("uvicorn", "uvicorn.error", *QUIET):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = name not in QUIET


def _plain(logger: object, method: str, event: EventDict) -> EventDict:
    """Without the server library's second message, which is for terminals."""
    event.pop("color_message", None)
    return event


@contextmanager
def bound(**values: str) -> Iterator[None]:
    """Put values on every line that is logged inside, threads of this context included."""
    tokens = bind_contextvars(**values)
    try:
        yield
    finally:
        reset_contextvars(**tokens)
