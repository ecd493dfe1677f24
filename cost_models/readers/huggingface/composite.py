"""Composites of a vision tower and a text model: LLaVA, Gemma 3, Llama 4, Qwen3-VL and Qwen3.5, both routed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cost_models.errors import InvalidModel
from cost_models.readers.huggingface import towers
from cost_models.readers.huggingface.architectures import ARCHITECTURES
from cost_models.readers.huggingface.common import refuse_tied
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.registry import find_reader
from cost_models.readers.huggingface.tower import Tower
from cost_models.readers.huggingface.towers import TowerReader
from cost_models.specs.model import Assumed, ModelSpec


@dataclass(frozen=True, slots=True)
class Composite:
    """What a family is made of. `text` maps the text model's model_type to its reader, the first one the default."""

    text: Mapping[str, str]
    vision: tuple[str, ...]
    tower: TowerReader
    tower_defaults: Mapping[str, Default]
    own: Mapping[str, Default]
    needs_tower: bool = False
    """Whether the tower must be stated: the class's own default is not that of the tower's class."""
    text_keys: tuple[tuple[str, ...], ...] = ()
    """Keys, with their other names, that the text model must state: its defaults are not those of the reader."""


_UNTIED = sizes(tie_word_embeddings=False)
_HEAD_OF_ITS_OWN = ("llama4",)
"""Families whose class has an untied head whatever the config says."""
_ROUTED_KEYS = (
    ("vocab_size",),
    ("hidden_size",),
    ("intermediate_size",),
    ("num_hidden_layers",),
    ("num_attention_heads",),
    ("num_key_value_heads",),
    ("head_dim",),
    ("moe_intermediate_size",),
    ("num_experts", "num_local_experts"),
    ("num_experts_per_tok",),
)
COMPOSITES: Mapping[str, Composite] = {
    "llava": Composite(
        text={"llama": "llama"},
        vision=("clip_vision_model",),
        tower=towers.clip_tower,
        tower_defaults=towers.CLIP,
        own={
            **sizes(tie_word_embeddings=False, multimodal_projector_bias=True),
            **options(
                projector_hidden_act="gelu",
                vision_feature_layer=-2,
                vision_feature_select_strategy="default",
            ),
        },
        needs_tower=True,
    ),
    "gemma3": Composite(
        text={"gemma3_text": "gemma3_text"},
        vision=("siglip_vision_model",),
        tower=towers.siglip_tower,
        tower_defaults=towers.SIGLIP,
        own={**sizes(tie_word_embeddings=True), **options(mm_tokens_per_image=256)},
    ),
    "llama4": Composite(
        text={"llama4_text": "llama4_text"},
        vision=("llama4_vision_model",),
        tower=towers.llama4_tower,
        tower_defaults=towers.LLAMA4,
        own=_UNTIED,
    ),
    "qwen3_vl_moe": Composite(
        text={"qwen3_vl_moe_text": "qwen3_moe"},
        vision=("qwen3_vl_moe_vision", "qwen3_vl_moe"),
        tower=towers.qwen_tower,
        tower_defaults=towers.QWEN,
        own=_UNTIED,
        text_keys=_ROUTED_KEYS,
    ),
    "qwen3_5_moe": Composite(
        text={"qwen3_5_moe_text": "qwen3_5_moe_text"},
        vision=("qwen3_5_moe_vision", "qwen3_5_moe"),
        tower=towers.qwen_tower,
        tower_defaults=towers.QWEN,
        own=_UNTIED,
    ),
}
"""LlavaConfig, Gemma3Config, Llama4Config, Qwen3VLMoeConfig and Qwen3_5MoeConfig of transformers 5.24."""


def reader(family: str) -> Callable[[Mapping[str, object], str], ModelSpec]:
    """The reader of one of the families."""

    def read(raw: Mapping[str, object], name: str) -> ModelSpec:
        whole = Config(raw, COMPOSITES[family].own, family)
        if _is_text_alone(raw, COMPOSITES[family]):
            text = _text(whole, COMPOSITES[family], raw, name)
            return text.model_copy(update={"assumed": (*whole.assumed, *text.assumed)})
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
    stated = _part(raw, "text_config", bool(composite.text_keys))
    family = composite.text[_one_of(stated, "text_config", tuple(composite.text))]
    for names in composite.text_keys:
        if not set(names) & set(stated):
            raise InvalidModel(
                f"the text_config of this {whole.family} has no {names[0]}; add it",
                pointer=f"/text_config/{names[0]}",
            )
    tied = _tied(whole, stated)
    try:
        text = find_reader(family)({**stated, "model_type": family, "tie_word_embeddings": tied}, name)
    except InvalidModel as error:
        raise _inside("text_config", error) from error
    return text.model_copy(update={"assumed": _prefixed("text_config", text.assumed)})


def _tied(whole: Config, text: Mapping[str, object]) -> bool:
    """The whole's word, whatever the text model's; where only the text model speaks it must not contradict."""
    tied = whole.flag("tie_word_embeddings")
    own = text.get("tie_word_embeddings", tied)
    if own != tied and not whole.states("tie_word_embeddings"):
        raise InvalidModel(
            f"tie_word_embeddings is {str(own)[:60]} in text_config and {tied} by default for the whole, which "
            "decides; state it for the whole",
            pointer="/tie_word_embeddings",
        )
    if tied and whole.family in _HEAD_OF_ITS_OWN:
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
