"""Writes a profile folder so that it can be used and gone on with at any moment: whole files, replaced at once."""

import hashlib
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from cost_models.errors import BadInput
from cost_models.profiles.found import slug
from cost_models.profiles.measured import MANIFEST_FILE, POINTS_FILE, Manifest, Point, point_line


def folder_name(versions: dict[str, str], now: datetime | None = None) -> str:
    """<date-versions>: the day and minute, and torch's version."""
    moment = (now or datetime.now(UTC)).strftime("%Y%m%d-%H%M")
    return f"{moment}-torch-{slug(versions.get('torch', 'unknown'))}"


def write_profile(folder: Path, manifest: Manifest, points: Sequence[Point]) -> Manifest:
    """Write the points and the manifest with their hash; raises BadInput where the folder cannot be written."""
    text = "".join(point_line(point) for point in points).encode()
    whole = manifest.model_copy(update={"points_sha256": hashlib.sha256(text).hexdigest()})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _replace(folder / POINTS_FILE, text)
        _replace(folder / MANIFEST_FILE, (whole.model_dump_json(indent=1) + "\n").encode())
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadInput(
            f"profile folder {folder} cannot be written ({reason}); give another --output"
        ) from None
    return whole


def _replace(path: Path, content: bytes) -> None:
    """All of the new content or all of the old, whenever the power goes."""
    beside = path.with_suffix(f"{path.suffix}.{os.getpid()}")
    beside.write_bytes(content)
    beside.replace(path)
