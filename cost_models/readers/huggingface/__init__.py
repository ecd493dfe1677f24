"""Hugging Face configs of known families, in plain Python; a family that is not known is refused by name."""

from collections.abc import Callable, Mapping
from typing import Final

from cost_models.errors import InvalidModel, UnknownModelFamily
from cost_models.readers.huggingface.bert import read_bert
from cost_models.readers.huggingface.deepseek import read_deepseek_v2, read_deepseek_v3
from cost_models.readers.huggingface.gemma import read_gemma3_text
from cost_models.readers.huggingface.gpt2 import read_gpt2
from cost_models.readers.huggingface.llama import read_llama, read_mistral
from cost_models.readers.huggingface.mixtral import read_mixtral
from cost_models.readers.huggingface.nemotron_h import read_nemotron_h
from cost_models.readers.huggingface.qwen import reader as qwen_reader
from cost_models.readers.huggingface.resnet import read_resnet
from cost_models.readers.huggingface.t5 import read_t5
from cost_models.specs.model import Assumed, ModelSpec
from cost_models.suggest import did_you_mean

FAMILIES: Final[Mapping[str, Callable[[Mapping[str, object], str], ModelSpec]]] = {
    "bert": read_bert,
    "deepseek_v2": read_deepseek_v2,
    "deepseek_v3": read_deepseek_v3,
    "gemma3_text": read_gemma3_text,
    "gpt2": read_gpt2,
    "llama": read_llama,
    "mistral": read_mistral,
    "mixtral": read_mixtral,
    "mt5": read_t5,
    "nemotron_h": read_nemotron_h,
    "qwen2": qwen_reader("qwen2"),
    "qwen2_moe": qwen_reader("qwen2_moe"),
    "qwen3": qwen_reader("qwen3"),
    "qwen3_moe": qwen_reader("qwen3_moe"),
    "resnet": read_resnet,
    "t5": read_t5,
    "umt5": read_t5,
}
"""Readers by model_type."""

ARCHITECTURES: Final[Mapping[str, str]] = {
    "BertForMaskedLM": "bert",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "GPT2LMHeadModel": "gpt2",
    "Gemma3ForCausalLM": "gemma3_text",
    "LlamaForCausalLM": "llama",
    "MT5ForConditionalGeneration": "mt5",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "NemotronHForCausalLM": "nemotron_h",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen2MoeForCausalLM": "qwen2_moe",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "ResNetForImageClassification": "resnet",
    "T5ForConditionalGeneration": "t5",
    "UMT5ForConditionalGeneration": "umt5",
}
"""The class whose parameters are counted; also the family of a config that states only its class."""

WAYS_OUT: Final = (
    "describe it in a layers file (docs/models.md); reading any architecture through the transformers extra "
    "is planned for a later version"
)


def read_huggingface(raw: Mapping[str, object], *, name: str = "") -> ModelSpec:
    """ModelSpec of a config of a known family."""
    family = _family(raw)
    nested = [key for key in ("text_config", "vision_config", "audio_config") if key in raw]
    if nested:
        raise UnknownModelFamily(
            f"model family {family!r} is composite ({', '.join(nested)}), which no reader knows yet; "
            f"give the config of its text model alone, or {WAYS_OUT}",
            pointer=f"/{nested[0]}",
            allowed=tuple(FAMILIES),
        )
    if family not in FAMILIES:
        raise UnknownModelFamily(
            f"model family {family[:80]!r} is not one of {', '.join(FAMILIES)}; "
            f"{did_you_mean(family[:80], tuple(FAMILIES))}{WAYS_OUT}",
            pointer="/model_type",
            allowed=tuple(FAMILIES),
        )
    model = FAMILIES[family]({**raw, "model_type": family}, name or family)
    extra = _general_assumptions(raw, family)
    return model.model_copy(update={"assumed": (*model.assumed, *extra)}) if extra else model


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
    known = [each for each, of in ARCHITECTURES.items() if of == family]
    if stated and not set(stated) & set(known):
        text = f"{known[0]} (the config says {stated[0][:60]})"
        found.append(Assumed(key="architectures", value=text, changes_parameters=True))
    return tuple(found)
