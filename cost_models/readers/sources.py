"""Where a model comes from: plain data, text, a file, a name of the catalog."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from pydantic import ValidationError

from cost_models.errors import InvalidModel, UnknownModelFamily
from cost_models.profiles import list_models, model_config
from cost_models.readers.huggingface import FAMILIES, read_huggingface
from cost_models.readers.huggingface.registry import COMPOSITE
from cost_models.readers.layers_file import is_layers_file, read_layers_file
from cost_models.readers.torch_module import can_build, is_factory, read_factory, read_transformers
from cost_models.specs.model import ModelSpec
from cost_models.strict_json import parse_config

MAX_FILE_BYTES: Final = 16 * 1024**2
EXTRA: Final = "parallelism-planner[transformers]"


Reader = Literal["auto", "plain", "transformers"]
"""Who reads a Hugging Face config: its family's reader, the library's own module, or (auto) the second where there is
no first."""


def read_model(source: Mapping[str, object], *, name: str = "", reader: Reader = "auto") -> ModelSpec:
    """ModelSpec of a Hugging Face config or of a layers file, told apart by their keys."""
    try:
        return _read(source, name, reader)
    except ValidationError as error:
        # Each key may be legal and the model they make together not: too many layers, say.
        sentence = error.errors(include_url=False, include_context=False)[0]["msg"]
        raise InvalidModel(f"the model: {sentence.removeprefix('Value error, ')}") from error


def _read(source: Mapping[str, object], name: str, reader: Reader) -> ModelSpec:
    if is_layers_file(source):
        return read_layers_file(source, name=name)
    if "model_type" in source or "architectures" in source:
        return _read_config(source, name, reader)
    raise InvalidModel(
        "the model has none of model_type (a Hugging Face config), layers_file or layers (a layers file); "
        "add the one that says what it is (docs/models.md)",
        pointer="/model_type",
    )


def _read_config(source: Mapping[str, object], name: str, reader: Reader) -> ModelSpec:
    """Through the family's reader; where there is none, through the module that transformers builds."""
    family = source.get("model_type")
    built = isinstance(family, str) and reader != "plain" and can_build(family)
    if reader == "transformers":
        if not built:
            raise UnknownModelFamily(
                f"model_type {str(family)[:80]!r} is not known to an installed transformers; "
                f"pip install {EXTRA}, or let reader be auto",
                pointer="/model_type",
            )
        return read_transformers(source, name=name)
    try:
        return read_huggingface(source, name=name)
    except UnknownModelFamily as error:
        # A composite's other parts may be built; a known family with a tower it has no class for stays refused.
        if built and FAMILIES.get(str(family), f"{COMPOSITE}:").startswith(f"{COMPOSITE}:"):
            return read_transformers(source, name=name)
        if reader == "plain":
            raise
        raise UnknownModelFamily(
            f"{error.detail}; pip install {EXTRA} reads it if its transformers knows that type",
            pointer=error.pointer,
            allowed=error.allowed,
        ) from None


def model_from_text(text: str, name: str = "", *, toml: bool = False) -> ModelSpec:
    """ModelSpec of JSON text (or TOML); broken text is refused with the line and column."""
    what = name or "the model"
    try:
        data = tomllib.loads(text) if toml else parse_config(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidModel(f"{what} is not valid TOML: {error}; correct that place") from error
    except RecursionError:
        raise InvalidModel(f"{what} is nested too deeply; write plain nested objects") from None
    except ValueError as error:
        raise InvalidModel(f"{what} {error}; correct that place") from error
    if not isinstance(data, dict):
        raise InvalidModel(f"{what} holds a {type(data).__name__}; write a JSON object")
    return read_model(data, name=name)


def load_model(text: str) -> ModelSpec:
    """ModelSpec of a file's path, of a name of the catalog, or of `package.module:factory`."""
    if text in list_models():
        return read_model(model_config(text), name=text)
    if is_factory(text):
        return read_factory(text)
    path = Path(text)
    if path.suffix.lower() in {".json", ".toml"} or "/" in text or path.is_file():
        return _from_file(path)
    return read_model(model_config(text), name=text)


def _from_file(path: Path) -> ModelSpec:
    if path.is_dir():
        path = path / "config.json"
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise InvalidModel(
                f"{path} has {size} bytes, a config at most {MAX_FILE_BYTES}; give the config file"
            )
        content = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidModel(
            f"model file {path} cannot be read: {reason}; give a path or a name of `planner catalog models`"
        ) from error
    name = path.parent.name if path.name == "config.json" else path.stem
    return model_from_text(content, name, toml=path.suffix.lower() == ".toml")
