"""Which file reads which model_type; a file is imported only when its family is asked for."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final

from cost_models.specs.model import ModelSpec

Reader = Callable[[Mapping[str, object], str], ModelSpec]
"""(config, name) -> ModelSpec."""

FAMILIES: Final[Mapping[str, str]] = {
    "bert": "bert:read_bert",
    "deepseek_v2": "deepseek:read_deepseek_v2",
    "deepseek_v3": "deepseek:read_deepseek_v3",
    "gemma3_text": "gemma:read_gemma3_text",
    "gpt2": "gpt2:read_gpt2",
    "llama": "llama:read_llama",
    "mistral": "llama:read_mistral",
    "mixtral": "mixtral:read_mixtral",
    "mt5": "t5:read_t5",
    "nemotron_h": "nemotron_h:read_nemotron_h",
    "qwen2": "qwen:read_qwen2",
    "qwen2_moe": "qwen:read_qwen2_moe",
    "qwen3": "qwen:read_qwen3",
    "qwen3_moe": "qwen:read_qwen3_moe",
    "resnet": "resnet:read_resnet",
    "t5": "t5:read_t5",
    "umt5": "t5:read_t5",
}
"""`file:function` by model_type; files stand beside this one."""

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


def find_reader(family: str) -> Reader:
    """The reader of a family of FAMILIES."""
    file, _, function = FAMILIES[family].partition(":")
    reader: Reader = getattr(import_module(f"cost_models.readers.huggingface.{file}"), function)
    return reader
