"""Where a command looks for measured profiles while it runs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cost_models.profiles import MEASURED_VARIABLE


@contextmanager
def measured_in(folder: Path | None) -> Iterator[None]:
    """Look in this folder, in this process and in those that it starts; None changes nothing."""
    if folder is None:
        yield
        return
    before = os.environ.get(MEASURED_VARIABLE)
    os.environ[MEASURED_VARIABLE] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[MEASURED_VARIABLE]
        else:
            os.environ[MEASURED_VARIABLE] = before
