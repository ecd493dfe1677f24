"""Checkpoints on disk: folders `step-N`, what makes one valid, the last good one, which are kept. Needs no torch."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cost_models.errors import BadInput

MANIFEST: Final = "manifest.json"
FORMAT: Final = 1
FOLDER: Final = re.compile(r"step-(\d{9,})")
LEFT_BEHIND: Final = re.compile(r"step-\d{9,}\.(partial|replaced|removed)-.*")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of a checkpoint."""

    num_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a checkpoint is of. `facts` are layout, model and options of the run that wrote it."""

    step: int
    next_sample: int
    elements: int
    """Elements of all parameters."""
    files: Mapping[str, StoredFile]
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.num_bytes for file in self.files.values())

    def write(self, folder: Path) -> None:
        """Write it so that it is whole or not there, with its own checksum."""
        document = {
            "format": FORMAT,
            "step": self.step,
            "next_sample": self.next_sample,
            "elements": self.elements,
            "files": {
                name: {"bytes": file.num_bytes, "sha256": file.sha256}
                for name, file in sorted(self.files.items())
            },
            "facts": dict(self.facts),
        }
        text = json.dumps(document | {"sha256": _own_checksum(document)}, indent=1) + "\n"
        partial = folder / f"{MANIFEST}.partial"
        with partial.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(folder / MANIFEST)
        sync_folder(folder)


@dataclass(frozen=True, slots=True)
class Entry:
    """A folder that looks like a checkpoint; `problem` says why it is none, as far as was looked."""

    path: Path
    step: int
    manifest: Manifest | None
    problem: str

    @property
    def is_valid(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.problem


def folder_of(parent: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return parent / f"step-{step:09d}"


def list_checkpoints(parent: Path) -> list[Entry]:
    """All that look like checkpoints, by step; sizes are checked, contents are not."""
    if not parent.is_dir():
        return []
    return sorted(
        (examine(path) for path in parent.iterdir() if FOLDER.fullmatch(path.name)),
        key=lambda entry: entry.step,
    )


def examine(path: Path) -> Entry:
    """One folder: its manifest, and whether its files are there in full."""
    named = FOLDER.fullmatch(path.name)
    try:
        manifest = read_manifest(path)
    except BadInput as error:
        return Entry(path, int(named[1]) if named else 0, None, str(error))
    for name, file in manifest.files.items():
        try:
            size = (path / name).stat().st_size
        except OSError:
            return Entry(path, manifest.step, manifest, f"{name} is missing")
        if size != file.num_bytes:
            return Entry(
                path, manifest.step, manifest, f"{name} has {size:,} bytes instead of {file.num_bytes:,}"
            )
    return Entry(path, manifest.step, manifest, "")


def damage(entry: Entry, names: Iterable[str]) -> str:
    """Which of these files is not what was written; empty where all are. Reads them."""
    assert entry.manifest is not None
    for name in names:
        try:
            found = file_of(entry.path / name).sha256
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
        if found != entry.manifest.files[name].sha256:
            return f"{name} does not have its checksum"
    return ""


def checked(entry: Entry) -> Entry:
    """The entry after a look at every byte of it."""
    if not entry.is_valid or entry.manifest is None:
        return entry
    return Entry(entry.path, entry.step, entry.manifest, damage(entry, entry.manifest.files))


def file_of(path: Path) -> StoredFile:
    """Size and checksum of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return StoredFile(path.stat().st_size, digest)


def read_manifest(path: Path) -> Manifest:
    """The manifest of a checkpoint; raises BadInput where there is none, or not as it was written."""
    try:
        document = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        checksum = document.pop("sha256")
        files = {
            str(name): StoredFile(int(file["bytes"]), str(file["sha256"]))
            for name, file in document["files"].items()
        }
        found = Manifest(
            int(document["step"]),
            int(document["next_sample"]),
            int(document["elements"]),
            files,
            dict(document["facts"]),
        )
    except FileNotFoundError:
        raise BadInput(f"no {MANIFEST}: it was not written to its end") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        what = " ".join(str(error).split())[:200]
        raise BadInput(f"{MANIFEST} cannot be read ({what})") from None
    if document.get("format") != FORMAT:
        raise BadInput(f"{MANIFEST} has format {document.get('format')!r}, and this version reads {FORMAT}")
    if checksum != _own_checksum(document):
        raise BadInput(f"{MANIFEST} does not have its checksum")
    if any(Path(name).name != name for name in files):
        raise BadInput(f"{MANIFEST} names files outside the checkpoint")
    return found


def commit(partial: Path, final: Path) -> None:
    """Give a finished folder its name, in place of an older one of the same step."""
    if final.exists():
        final.rename(final.with_name(f"{final.name}.replaced-{os.getpid()}"))
    partial.rename(final)
    sync_folder(final.parent)


def prune(parent: Path, keep: int) -> list[Path]:
    """Remove all but the newest so many valid checkpoints, and whatever older is not valid; returns what went."""
    valid = [entry for entry in list_checkpoints(parent) if entry.is_valid]
    kept = valid[-keep:] if keep else valid
    oldest = kept[0].step if kept else 0
    gone = [entry.path for entry in list_checkpoints(parent) if entry.step < oldest]
    for path in gone:
        remove(path)
    return gone


def remove(path: Path) -> None:
    """Remove a folder; it loses its name first, so that half of it is never taken for a checkpoint."""
    doomed = path.with_name(f"{path.name}.removed-{os.getpid()}")
    try:
        path.rename(doomed)
    except OSError:
        doomed = path
    shutil.rmtree(doomed, ignore_errors=True)


def remove_left_behind(parent: Path) -> None:
    """Remove what killed processes left of checkpoints that they wrote, replaced or removed."""
    for path in parent.iterdir() if parent.is_dir() else ():
        if LEFT_BEHIND.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Bring names in a folder to the disk, where the system can."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:  # some network file systems cannot
        return
    finally:
        os.close(descriptor)


def _own_checksum(document: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
