"""Reads files and standard input; each thing that can be wrong with them is one sentence."""

import os
import sys
from pathlib import Path
from typing import Any, Final

from cost_models.errors import BadInput
from cost_models.strict_json import parse_config, parse_json

STANDARD_INPUT: Final = "-"
MAX_INPUT_BYTES: Final = 64 * 1024**2
CONFIG_FILE: Final = "config.json"
FILE_SUFFIXES: Final = (".json", ".toml", ".yaml", ".yml", ".txt")


def is_path(text: str) -> bool:
    """Whether a value of --model or --strategy names a file rather than a catalog entry."""
    return os.sep in text or text.lower().endswith(FILE_SUFFIXES) or is_file(text)


def is_file(text: str) -> bool:
    """Whether there is a file of this name; what can be no name is none."""
    try:
        return Path(text).is_file()
    except OSError:
        return False


def is_model_path(text: str) -> bool:
    """Whether a value of --model names a file, or a folder of a model."""
    return is_path(text) or config_file(text) != text


def config_file(text: str) -> str:
    """The config.json of a model's folder; any other name as it is."""
    inside = Path(text) / CONFIG_FILE
    return str(inside) if is_file(str(inside)) else text


def read_text(name: str, what: str) -> str:
    """Text of a file or, for `-`, of standard input; raises BadInput in one sentence."""
    try:
        raw = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1) if name == STANDARD_INPUT else _read_file(name, what)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadInput(f"{what} {shown(name)} cannot be read ({reason}); check the path") from None
    if len(raw) > MAX_INPUT_BYTES:
        size = f"larger than {MAX_INPUT_BYTES / 1024**2:.0f} MiB"
        raise BadInput(f"{what} {shown(name)} is {size}; give the configuration, not the weights")
    if not raw.strip():
        raise BadInput(f"{what} {shown(name)} is empty; give its contents")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{what} {shown(name)} is not text (byte {error.start} is not UTF-8); give a text file"
        ) from None


def read_json(text: str, name: str, what: str) -> dict[str, Any]:
    """The JSON object of a text; raises BadInput with line and column."""
    try:
        value = parse_config(text) if what == "model" else parse_json(text)
    except ValueError as error:
        raise BadInput(f"{what} {shown(name)} {error}; correct it") from None
    if not isinstance(value, dict):
        raise BadInput(f"{what} {shown(name)} holds a {type(value).__name__}; give a JSON object")
    return value


def shown(name: str) -> str:
    """A file's name as shown in messages, shortened."""
    return "on standard input" if name == STANDARD_INPUT else repr(name[:200])


def _read_file(name: str, what: str) -> bytes:
    path = Path(name)
    if path.is_dir():
        raise BadInput(f"{what} {shown(name)} is a directory without {CONFIG_FILE}; give a file")
    with path.open("rb") as stream:
        return stream.read(MAX_INPUT_BYTES + 1)
