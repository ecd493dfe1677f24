"""Checkpoints on disk: which are valid, which is the last good one, which are kept, what is left behind."""

import json
from pathlib import Path

import pytest

from planner.executor.checkpoint.store import (
    MANIFEST,
    Manifest,
    StoredFile,
    checked,
    commit,
    file_of,
    folder_of,
    list_checkpoints,
    prune,
    remove_left_behind,
)


def write(parent: Path, step: int, content: bytes = b"weights") -> Path:
    """A checkpoint of one file."""
    folder = folder_of(parent, step)
    folder.mkdir(parents=True)
    (folder / "__0_0.distcp").write_bytes(content)
    files = {"__0_0.distcp": file_of(folder / "__0_0.distcp")}
    Manifest(step, 8 * step, 7, files, {"layout": "tp=2"}).write(folder)
    return folder


def test_a_checkpoint_reads_as_it_was_written(tmp_path: Path) -> None:
    write(tmp_path, 12)
    (entry,) = list_checkpoints(tmp_path)
    # sha256 of "weights", as sha256sum says.
    digest = "9a129038d9a00aed0cf6a7ea059ca50a813449061ab87848cf1a13eafdf33b2c"
    assert entry.manifest is not None
    assert entry.manifest.files == {"__0_0.distcp": StoredFile(7, digest)}
    assert (entry.step, entry.manifest.next_sample, entry.manifest.num_bytes) == (12, 96, 7)
    assert entry.manifest.facts == {"layout": "tp=2"}
    assert checked(entry).is_valid


def cut_short(folder: Path) -> None:
    """A file that lost its end."""
    (folder / "__0_0.distcp").write_bytes(b"weigh")


def flip(folder: Path) -> None:
    """A file with another byte."""
    (folder / "__0_0.distcp").write_bytes(b"weightz")


def lose(folder: Path) -> None:
    """A file that is gone."""
    (folder / "__0_0.distcp").unlink()


def lose_manifest(folder: Path) -> None:
    """A checkpoint that was never finished."""
    (folder / MANIFEST).unlink()


def cut_manifest(folder: Path) -> None:
    """Half a manifest."""
    (folder / MANIFEST).write_text((folder / MANIFEST).read_text()[:80])


def change_manifest(folder: Path) -> None:
    """A manifest of another step."""
    document = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps(document | {"step": 99}))


def lead_outside(folder: Path) -> None:
    """A manifest that names a file elsewhere."""
    Manifest(2, 16, 7, {"../x": StoredFile(1, "")}).write(folder)


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (cut_short, "has 5 bytes instead of 7"),
        (flip, "does not have its checksum"),
        (lose, "is missing"),
        (lose_manifest, "not written to its end"),
        (cut_manifest, "cannot be read"),
        (change_manifest, "manifest.json does not have its checksum"),
        (lead_outside, "outside the checkpoint"),
    ],
)
def test_a_harmed_checkpoint_is_none(tmp_path: Path, harm: object, words: str) -> None:
    assert callable(harm)
    write(tmp_path, 1)
    harm(write(tmp_path, 2))
    first, second = (checked(entry) for entry in list_checkpoints(tmp_path))
    assert first.is_valid
    assert words in second.problem


def test_the_newest_valid_ones_are_kept(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4, 5):
        write(tmp_path, step)
    lose_manifest(folder_of(tmp_path, 4))
    lose_manifest(folder_of(tmp_path, 1))
    assert [path.name for path in prune(tmp_path, 2)] == ["step-000000001", "step-000000002"]
    # 3 and 5 are the newest two that are valid; what is broken between them is somebody's to look at.
    assert [entry.step for entry in list_checkpoints(tmp_path)] == [3, 4, 5]
    assert prune(tmp_path, 0) == []


def test_a_step_written_again_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    final = write(tmp_path, 3)
    partial = final.with_name(f"{final.name}.partial-x")
    write(tmp_path / "elsewhere", 3, b"other weights").rename(partial)
    commit(partial, final)
    assert (final / "__0_0.distcp").read_bytes() == b"other weights"
    remove_left_behind(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", final.name]
