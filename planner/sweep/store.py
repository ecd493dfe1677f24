"""Results of a sweep on disk: one JSON line a row in `results.jsonl`, appended and flushed as rows come.

A line that a crash cut short is dropped on the next start. One process at a time may write to a folder.
"""

import fcntl
import json
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO

from cost_models.errors import BadInput
from planner.sweep.solve import FAILED, Row

RESULTS = "results.jsonl"


class Store:
    """The folder of a sweep, open for writing."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.rows: dict[str, Row] = {}
        self._file: IO[bytes] | None = None

    def __enter__(self) -> "Store":
        """Make the folder, lock it and read what is there; raises BadInput where that cannot be."""
        path = self.folder / RESULTS
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            stream = path.open("a+b")
        except OSError as error:
            raise BadInput(
                f"folder {str(self.folder)[:200]} cannot be written ({error.strerror}); choose another -o"
            ) from None
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            stream.close()
            raise BadInput(
                f"another sweep is writing to {str(self.folder)[:200]}; wait for it, or choose another -o"
            ) from None
        self._file = stream
        self.rows = _read(stream)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def has(self, key: str) -> bool:
        """Whether a row is done; one that failed by a fault of ours is tried again."""
        return key in self.rows and self.rows[key].get("status") != FAILED

    def add(self, row: Row) -> None:
        """Append a row; it is on disk when this returns."""
        assert self._file is not None
        self.rows[str(row["key"])] = row
        self._file.write(json.dumps(row, allow_nan=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def _read(stream: IO[bytes]) -> dict[str, Row]:
    """Rows of a file by key, the last of each; what follows the last whole line is cut off."""
    stream.seek(0)
    text = stream.read()
    whole = text.rfind(b"\n") + 1
    if whole < len(text):
        stream.truncate(whole)
    stream.seek(0, os.SEEK_END)
    return {str(row["key"]): row for row in _parsed(text[:whole].splitlines())}


def _parsed(lines: Iterable[bytes]) -> Iterable[Row]:
    for line in lines:
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict) and "key" in row:
            yield row
