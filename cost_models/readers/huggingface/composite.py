"""Composites of a vision tower and a text model: LLaVA, Gemma 3, Llama 4, Qwen3-VL and Qwen3.5, both routed."""

from collections.abc import Callable, Mapping

from cost_models.errors import InvalidModel, UnknownModelFamily
from cost_models.readers.huggingface.architectures import ARCHITECTURES
from cost_models.readers.huggingface.common import refuse_tied
from cost_models.readers.huggingface.composites import COMPOSITES, HEAD_OF_ITS_OWN, Composite
from cost_models.readers.huggingface.config import Config
from cost_models.readers.huggingface.registry import find_reader
from cost_models.readers.huggingface.tower import Tower
from cost_models.readers.huggingface.towers_more import no_tower
from cost_models.specs.model import Assumed, ModelSpec

WHOLE_KEYS = ("model_type", "architectures", "vision_config", "text_config")
"""Keys of a flat config that are not the text model's."""


def reader(family: str) -> Callable[[Mapping[str, object], str], ModelSpec]:
    """The reader of one of the families."""

    def read(raw: Mapping[str, object], name: str) -> ModelSpec:
        composite = COMPOSITES[family]
        whole = Config(raw, composite.own, family)
        absent = composite.optional_tower and raw.get("vision_config") is None
        if absent:
            whole.note("vision_config", "null, which is no tower", changes_parameters=True)
        if absent or _is_text_alone(raw, composite):
            text = _text(whole, COMPOSITES[family], raw, name)
            known = {"assumed": (*whole.assumed, *text.assumed)}
            return text.model_copy(update={"family": family, **known} if absent else known)
        if composite.tower is no_tower:
            raise UnknownModelFamily(
                f"the vision_config of model_type {family!r} is not read; give the config of its text model alone",
                pointer="/vision_config",
            )
        return _read(whole, raw, name)

    return read


def _is_text_alone(raw: Mapping[str, object], composite: Composite) -> bool:
    """Whether the config's class is that of the text model, which the library builds without the tower."""
    stated = raw.get("architectures")
    first = stated[0] if isinstance(stated, list | tuple) and stated else None
    return isinstance(first, str) and ARCHITECTURES.get(first) in composite.text


def _read(whole: Config, raw: Mapping[str, object], name: str) -> ModelSpec:
    composite = COMPOSITES[whole.family]
    text = _text(whole, composite, raw, name)
    vision_raw = _part(raw, "vision_config", composite.needs_tower)
    _one_of(vision_raw, "vision_config", composite.vision)
    config = Config(vision_raw, composite.tower_defaults, whole.family)
    try:
        tower = composite.tower(config, whole, text.hidden_size)
    except InvalidModel as error:
        raise _inside("vision_config", error, whole) from error
    image = Assumed(
        key="images_per_sequence",
        value=f"1, of {tower.positions} positions in the tower and {tower.tokens} in the text",
        changes_parameters=False,
    )
    assumed = (*whole.assumed, *text.assumed, *_prefixed("vision_config", config.assumed), image)
    return _joined(whole.family, text, tower).model_copy(update={"assumed": assumed})


def _joined(family: str, text: ModelSpec, tower: Tower) -> ModelSpec:
    """The tower's layers, then the text model's; the text model's sizes are the model's."""
    return text.model_copy(
        update={
            "family": family,
            "layers": (*tower.layers(), *text.layers),
            "kinds": {**tower.kinds(text.hidden_size), **text.kinds},
            "stacks": (*tower.stacks(), *text.stacks),
            "semantics": {**text.semantics, "vision_activation": tower.frame.mlp.function},
        }
    )


def _text(whole: Config, composite: Composite, raw: Mapping[str, object], name: str) -> ModelSpec:
    """The text model under its own reader; whether its table is tied is the whole's to say."""
    if composite.flat and raw.get("text_config") is None:
        stated: Mapping[str, object] = {key: raw[key] for key in raw if key not in WHOLE_KEYS}
    else:
        stated = _part(raw, "text_config", bool(composite.text_keys))
    family = composite.text[_one_of(stated, "text_config", tuple(composite.text))]
    for names in composite.text_keys:
        if not set(names) & set(stated):
            raise InvalidModel(
                f"the text_config of this {whole.family} has no {names[0]}; add it",
                pointer=f"/text_config/{names[0]}",
            )
    tied = _tied(whole, stated, composite.text_ties)
    try:
        text = find_reader(family)({**stated, "model_type": family, "tie_word_embeddings": tied}, name)
    except InvalidModel as error:
        raise _inside("text_config", error) from error
    return text.model_copy(update={"assumed": _prefixed("text_config", text.assumed)})


def _tied(whole: Config, text: Mapping[str, object], text_ties: bool) -> bool:
    """The whole's word, whatever the text model's; where only the text model speaks it must not contradict."""
    if text_ties and text.get("tie_word_embeddings") is True:
        return True
    tied = whole.flag("tie_word_embeddings")
    own = text.get("tie_word_embeddings", tied)
    if own != tied and not whole.states("tie_word_embeddings"):
        raise InvalidModel(
            f"tie_word_embeddings is {str(own)[:60]} in text_config and {tied} by default for the whole, which "
            "decides; state it for the whole",
            pointer="/tie_word_embeddings",
        )
    if tied and whole.family in HEAD_OF_ITS_OWN:
        refuse_tied(whole)
    return tied


def _part(raw: Mapping[str, object], key: str, needed: bool) -> Mapping[str, object]:
    """A nested config; null or absent: all defaults, where the family has any."""
    value = raw.get(key)
    if value is None and not needed:
        return {}
    if not isinstance(value, Mapping):
        shown = "missing" if value is None else str(value)[:60]
        raise InvalidModel(f"{key} is {shown}; give an object with the sizes of that part", pointer=f"/{key}")
    return value


def _one_of(part: Mapping[str, object], key: str, known: tuple[str, ...]) -> str:
    """The model_type of a part, the first of `known` where absent."""
    stated = part.get("model_type", known[0])
    if not isinstance(stated, str) or stated not in known:
        raise InvalidModel(
            f"{key} is of model_type {str(stated)[:60]}; only {' and '.join(known)} are read here",
            pointer=f"/{key}/model_type",
            allowed=known,
        )
    return stated


def _prefixed(part: str, assumed: tuple[Assumed, ...]) -> tuple[Assumed, ...]:
    return tuple(each.model_copy(update={"key": f"{part}.{each.key}"}) for each in assumed)


def _inside(part: str, error: InvalidModel, whole: Config | None = None) -> InvalidModel:
    """The same error, pointing into the part unless the key is the whole's."""
    key = error.pointer.split("/")[1] if "/" in error.pointer else ""
    if whole is not None and key in COMPOSITES[whole.family].own:
        return error
    return InvalidModel(f"{part}: {error.detail}", pointer=f"/{part}{error.pointer}", allowed=error.allowed)


read_llava = reader("llava")
read_gemma3 = reader("gemma3")
read_llama4 = reader("llama4")
read_qwen3_vl_moe = reader("qwen3_vl_moe")
read_qwen3_5_moe = reader("qwen3_5_moe")
read_qwen3_vl = reader("qwen3_vl")
read_qwen3_5 = reader("qwen3_5")
read_qwen2_vl = reader("qwen2_vl")
read_qwen2_5_vl = reader("qwen2_5_vl")
read_gemma4 = reader("gemma4")
read_gemma4_unified = reader("gemma4_unified")
read_mllama = reader("mllama")
read_mistral3 = reader("mistral3")
