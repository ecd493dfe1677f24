"""Hugging Face configs of known families, in plain Python; a family that is not known is refused by name."""

from collections.abc import Mapping
from typing import Final

from cost_models.errors import InvalidModel, UnknownModelFamily
from cost_models.readers.huggingface.architectures import ARCHITECTURES
from cost_models.readers.huggingface.registry import (
    COMPOSITE,
    FAMILIES,
    SAME_CLASS,
    find_reader,
)
from cost_models.readers.huggingface.unusual import unusual_settings
from cost_models.specs.model import Assumed, ModelSpec
from cost_models.suggest import did_you_mean

WAYS_OUT: Final = "describe it in a layers file (docs/models.md)"

PAIRS: Final = "bart"
"""The file of the families of an encoder and a decoder that may also stand alone."""

ALONE: Final = "ForCausalLM"
"""How the classes of those decoders end."""


def read_huggingface(raw: Mapping[str, object], *, name: str = "") -> ModelSpec:
    """ModelSpec of a config of a known family."""
    family = _family(raw)
    nested = [key for key in ("text_config", "vision_config", "audio_config") if raw.get(key) is not None]
    if nested and not _takes(family, nested):
        raise UnknownModelFamily(
            f"model_type {family[:80]!r} is composite ({', '.join(nested)}), which no reader knows yet; "
            f"give the config of its text model alone, or {WAYS_OUT}",
            pointer=f"/{nested[0]}",
            allowed=tuple(FAMILIES),
        )
    if family not in FAMILIES:
        raise UnknownModelFamily(
            f"model_type {family[:80]!r} is not one of the {len(FAMILIES)} that docs/models.md lists; "
            f"{did_you_mean(family[:80].strip().lower(), tuple(FAMILIES))}{WAYS_OUT}",
            pointer="/model_type",
            allowed=tuple(FAMILIES),
        )
    model = find_reader(family)({**raw, "model_type": family}, name or family)
    extra = _general_assumptions(raw, model.family)
    unusual = unusual_settings(raw, model.family)
    if not extra and not unusual:
        return model
    semantics = {**model.semantics, **unusual}
    return model.model_copy(update={"assumed": (*model.assumed, *extra), "semantics": semantics})


def _family(raw: Mapping[str, object]) -> str:
    """model_type, or the family of the first architecture."""
    family = raw.get("model_type")
    if isinstance(family, str):
        return family
    if family is not None:
        raise InvalidModel(
            f"model_type is {str(family)[:60]}; give a text such as llama", pointer="/model_type"
        )
    stated = _architectures(raw)
    return ARCHITECTURES.get(stated[0], stated[0]) if stated else ""


def _takes(family: str, nested: list[str]) -> bool:
    """Whether the family is a composite of a vision tower and a text model, and nothing else is nested."""
    return FAMILIES.get(family, "").startswith(f"{COMPOSITE}:") and "audio_config" not in nested


def _architectures(raw: Mapping[str, object]) -> tuple[str, ...]:
    stated = raw.get("architectures")
    if not isinstance(stated, list | tuple):
        return ()
    return tuple(each for each in stated if isinstance(each, str))


def _general_assumptions(raw: Mapping[str, object], family: str) -> tuple[Assumed, ...]:
    """What is read past in any config: a quantised checkpoint format, a class other than the one counted."""
    found = []
    if raw.get("quantization_config") is not None:
        text = "ignored: the format of the checkpoint, not of training"
        found.append(Assumed(key="quantization_config", value=text, changes_parameters=False))
    stated = _architectures(raw)
    counted = SAME_CLASS.get(family, family)
    known = [each for each, of in ARCHITECTURES.items() if of == counted]
    alone = FAMILIES.get(family, "").startswith(f"{PAIRS}:") and stated[:1] and stated[0].endswith(ALONE)
    if stated and not alone and not set(stated) & set(known):
        text = f"{known[0]} (the config says {stated[0][:60]})"
        found.append(Assumed(key="architectures", value=text, changes_parameters=True))
    if not stated and FAMILIES.get(family, "").startswith((f"{PAIRS}:", f"{COMPOSITE}:")):
        # The library has a class for a part of these alone as well; the whole is taken.
        found.append(Assumed(key="architectures", value=known[0], changes_parameters=True))
    return tuple(found)


__all__ = ["FAMILIES", "read_huggingface"]
