"""Models that were read once, kept as files: by what the config says, by library versions, by this reader's code."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from cost_models.specs.model import ModelSpec

VARIABLE: Final = "PLANNER_CACHE_DIR"
LIBRARIES: Final = ("torch", "transformers", "pydantic")


def folder() -> Path:
    """Where files are kept: PLANNER_CACHE_DIR, else the user's cache folder (XDG base directories)."""
    stated = os.environ.get(VARIABLE)
    if stated:
        return Path(stated) / "models"
    base = os.environ.get("XDG_CACHE_HOME")
    home = Path(base) if base else Path.home() / ".cache"
    return home / "parallelism-planner" / "models"


def key_of(raw: Mapping[str, object]) -> str:
    """Name of the file for a config."""
    text = json.dumps(raw, sort_keys=True, default=str)
    return hashlib.sha256(f"{text}\0{_fingerprint()}".encode("utf-8", "surrogatepass")).hexdigest()


def load(key: str) -> ModelSpec | None:
    """The model kept under a key; None where there is none, or where the file is not whole."""
    try:
        return ModelSpec.model_validate_json((folder() / f"{key}.json").read_bytes())
    except (OSError, RuntimeError, ValidationError):
        return None


def store(key: str, model: ModelSpec) -> None:
    """Keep a model; whoever writes last wins whole, and a folder that cannot be written is no error."""
    with suppress(OSError, RuntimeError):
        place = folder()
        place.mkdir(parents=True, exist_ok=True)
        draft = place / f".{key}-{uuid.uuid4().hex}"
        try:
            draft.write_text(model.model_dump_json(), encoding="utf-8")
            draft.replace(place / f"{key}.json")
        finally:
            draft.unlink(missing_ok=True)


@cache
def _fingerprint() -> str:
    """Versions of the libraries, and the code that turns their modules into models."""
    parts = []
    for name in LIBRARIES:
        try:
            parts.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            parts.append(f"no {name}")
    here = Path(__file__).parent
    for path in (*sorted(here.glob("*.py")), here.parents[1] / "operators" / "traced.py"):
        parts.append(hashlib.sha256(path.read_bytes()).hexdigest())
    return "\0".join(parts)
