"""A Hugging Face config of any family that the installed transformers knows -> a module without memory.

Nothing is downloaded and no code but the library's own runs: weights stand on torch's meta device.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from cost_models.errors import InvalidModel, UnknownModelFamily
from cost_models.readers.torch_module.quiet import one_line, quietly
from cost_models.specs.model import MAX_LAYERS

if TYPE_CHECKING:
    from torch import nn

AUTO_CLASSES: Final = (
    "AutoModelForCausalLM",
    "AutoModelForSeq2SeqLM",
    "AutoModelForMaskedLM",
    "AutoModelForImageClassification",
    "AutoModelForObjectDetection",
    "AutoModelForSpeechSeq2Seq",
    "AutoModelForCTC",
    "AutoModelForImageTextToText",
    "AutoModel",
)
"""Which class counts where a config names none, in this order."""
MAX_SIZE: Final = 100_000_000
MAX_ENTRIES: Final = 100_000
MAX_DEPTH: Final = 2_000
"""Layers that are built one by one; more than any published model has, and still seconds."""
BUILD_LIMIT_S: Final = 60.0
LAYER_WORDS: Final = ("layers", "n_layer", "depth", "num_blocks", "num_stages", "num_hidden")
LIMITS: Final = {"experts": 100_000, "heads": 100_000, "num_labels": 1_000_000}
"""Most of what is held one by one, by a word of the key."""
DROPPED: Final = (
    "auto_map",
    "quantization_config",
    "trust_remote_code",
    "attn_implementation",
    "_attn_implementation",
    "torch_dtype",
    "dtype",
    "_name_or_path",
    "name_or_path",
    "use_pretrained_backbone",
    "transformers_version",
)
"""Keys about weights, code and formats: none changes what is built, some would fetch something."""


@dataclass(frozen=True)
class Built:
    """A module on the meta device, the library's config of it, and the class that was taken."""

    module: nn.Module
    config: Any
    named: str
    chosen: bool
    """Whether the config named the class itself."""


class TookTooLong(BaseException):
    """A limit on time is over; no handler of the library may swallow it."""


def build(raw: Mapping[str, object]) -> Built:
    """The module of a config; raises InvalidModel with the key, or with the library's own sentence."""
    family = str(raw.get("model_type"))
    check_sizes(raw)
    with quietly(), _offline():
        config = _config(family, {key: value for key, value in raw.items() if key not in DROPPED})
        wanted = raw.get("architectures")
        names = [each for each in wanted if isinstance(each, str)] if isinstance(wanted, list | tuple) else []
        for name in names:
            known = _class_named(name)
            if known is not None:
                return Built(_instance(known, config, family), config, name, chosen=True)
        chosen = _auto_class(config)
        if chosen is None:
            raise InvalidModel(
                f"transformers knows model_type {family[:80]!r} but builds no model from it alone; give the config "
                "of the whole model",
                pointer="/model_type",
            )
        return Built(_instance(chosen, config, family), config, chosen.__name__, chosen=False)


def check_sizes(raw: Mapping[str, object], prefix: str = "", level: int = 0) -> None:
    """Refuse sizes that no model has before anything is built, nested configs included."""
    if level > 8:
        raise InvalidModel(f"{prefix} is nested too deeply; write plain nested objects", pointer=f"/{prefix}")
    for key, value in raw.items():
        place = f"{prefix}/{key}" if prefix else str(key)
        if isinstance(value, Mapping):
            check_sizes(value, place, level + 1)
        elif isinstance(value, list | tuple):
            if len(value) > MAX_ENTRIES:
                raise InvalidModel(
                    f"{place} has {len(value):,} entries; give at most {MAX_ENTRIES:,}", pointer=f"/{place}"
                )
            for index, each in enumerate(value):
                _check_size(f"{place}/{index}", each, str(key))
        else:
            _check_size(place, value, str(key))


def _check_size(place: str, value: object, key: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        return
    if abs(value) > MAX_SIZE and not key.endswith("token_id"):
        raise InvalidModel(
            f"{place} is {str(value)[:40]}; give a whole number up to {MAX_SIZE:,}", pointer=f"/{place}"
        )
    for word, most in LIMITS.items():
        if word in key and value > most:
            raise InvalidModel(f"{place} is {value:,}; give at most {most:,}", pointer=f"/{place}")
    if any(word in key for word in LAYER_WORDS) and not 0 <= value <= MAX_DEPTH:
        most = MAX_DEPTH if value <= MAX_LAYERS else MAX_LAYERS
        raise InvalidModel(
            f"{place} is {value:,}; a model that is built layer by layer has 0 to {most:,}",
            pointer=f"/{place}",
        )


def _config(family: str, values: Mapping[str, object]) -> Any:
    """The library's own configuration object; what it refuses is told in one line."""
    from transformers import CONFIG_MAPPING

    if family not in CONFIG_MAPPING:
        raise UnknownModelFamily(
            f"model family {family[:80]!r} is not known to the installed transformers either",
            pointer="/model_type",
        )
    try:
        with time_limit(BUILD_LIMIT_S, f"the configuration of {family}"):
            return CONFIG_MAPPING[family].from_dict(dict(values))
    except InvalidModel:
        raise
    except Exception as error:
        raise InvalidModel(
            f"transformers refuses this {family} config: {one_line(error)}; correct that key"
        ) from error


def _class_named(name: str) -> Any:
    """A model class of the library, None for any other name."""
    import transformers

    if not name.isidentifier() or name.startswith("_"):
        return None
    found = getattr(transformers, name, None)
    base = transformers.PreTrainedModel
    return found if isinstance(found, type) and issubclass(found, base) else None


def _auto_class(config: Any) -> Any:
    """The class that the library itself takes for a config, by the order of AUTO_CLASSES."""
    import transformers

    for name in AUTO_CLASSES:
        mapping = getattr(getattr(transformers, name, None), "_model_mapping", {})
        if type(config) in mapping:
            found = mapping[type(config)]
            return found[0] if isinstance(found, tuple) else found
    return None


def _instance(kind: Any, config: Any, family: str) -> nn.Module:
    """One module without memory; raises InvalidModel with the library's own sentence."""
    import torch

    try:
        with torch.device("meta"), time_limit(BUILD_LIMIT_S, f"building {kind.__name__}"):
            module: nn.Module = kind._from_config(_own_config(kind, config))
    except InvalidModel:
        raise
    except Exception as error:
        raise InvalidModel(
            f"transformers cannot build {kind.__name__} from this {family} config: {one_line(error)}; "
            "correct the key it names"
        ) from error
    return module


def _own_config(kind: Any, config: Any) -> Any:
    """The config that a class reads: the given one, or the part of a composite that is its own."""
    wanted = getattr(kind, "config_class", None)
    if wanted is None or isinstance(config, wanted):
        return config
    for key in getattr(type(config), "sub_configs", {}):
        part = getattr(config, key, None)
        if isinstance(part, wanted):
            return part
    if _auto_classes(config, kind):
        return config
    raise InvalidModel(
        f"architectures names {kind.__name__}, which is not built from a {type(config).__name__}; make the two agree",
        pointer="/architectures",
    )


def _auto_classes(config: Any, kind: Any) -> bool:
    """Whether the library itself builds this class from this config (Exaone's is Llama's)."""
    import transformers

    for name in AUTO_CLASSES:
        mapping = getattr(getattr(transformers, name, None), "_model_mapping", {})
        found = mapping.get(type(config), ())
        if kind in (found if isinstance(found, tuple) else (found,)):
            return True
    return False


@contextmanager
def time_limit(seconds: float, what: str) -> Iterator[None]:
    """Stop work on tensors after some seconds; raises InvalidModel naming what took so long."""
    from torch.overrides import TorchFunctionMode

    end = time.monotonic() + seconds

    class Deadline(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if time.monotonic() > end:
                raise TookTooLong
            return func(*args, **(kwargs or {}))

    try:
        with Deadline():
            yield
    except TookTooLong:
        raise InvalidModel(
            f"{what} took more than {seconds:g} s and was stopped; give a smaller model or a layers file"
        ) from None


@contextmanager
def _offline() -> Iterator[None]:
    """No download, whatever a config names."""
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
