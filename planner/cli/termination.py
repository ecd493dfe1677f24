"""SIGTERM ends a command as an interrupt does: what was begun is tidied up, and one line says so."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Never


class Terminated(SystemExit):
    """SIGTERM came."""


@contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Inside, SIGTERM raises Terminated in the main thread; commands that run others take it themselves."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _raise)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def die_of_sigterm() -> None:
    """End as the signal would have: a shell says 143, and a parent knows that nothing else was seen to, as opposed to a
    followed run, which ends with that code once its launcher's job is over."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)


def _raise(*_: object) -> Never:
    raise Terminated
