"""Where a command looks for measured profiles while it runs."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from cost_models.profiles import measured_from


def measured_in(folder: Path | None) -> AbstractContextManager[None]:
    """Look in this folder, in this process and in those that it starts; None changes nothing."""
    return nullcontext() if folder is None else measured_from(folder)
