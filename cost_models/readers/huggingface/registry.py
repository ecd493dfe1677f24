"""Which file reads which model_type; a file is imported only when its family is asked for."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final

from cost_models.specs.model import ModelSpec

Reader = Callable[[Mapping[str, object], str], ModelSpec]
"""(config, name) -> ModelSpec."""

FAMILIES: Final[Mapping[str, str]] = {
    "albert": "albert:read_albert",
    "bart": "bart:read_bart",
    "bert": "bert:read_bert",
    "blenderbot": "bart:read_blenderbot",
    "blenderbot-small": "bart:read_blenderbot_small",
    "camembert": "bert:read_camembert",
    "data2vec-text": "bert:read_data2vec_text",
    "deepseek_v2": "deepseek:read_deepseek_v2",
    "deepseek_v3": "deepseek:read_deepseek_v3",
    "distilbert": "distilbert:read_distilbert",
    "electra": "albert:read_electra",
    "ernie": "bert:read_ernie",
    "gemma3_text": "gemma:read_gemma3_text",
    "gpt2": "gpt2:read_gpt2",
    "gpt_oss": "gpt_oss:read_gpt_oss",
    "granitemoe": "granitemoe:read_granitemoe",
    "granitemoeshared": "granitemoe:read_granitemoeshared",
    "llama": "llama:read_llama",
    "m2m_100": "bart:read_m2m_100",
    "marian": "bart:read_marian",
    "mbart": "bart:read_mbart",
    "megatron-bert": "bert:read_megatron_bert",
    "minimax_m2": "minimax:read_minimax_m2",
    "mistral": "llama:read_mistral",
    "mixtral": "mixtral:read_mixtral",
    "modernbert": "modernbert:read_modernbert",
    "mt5": "t5:read_t5",
    "nemotron_h": "nemotron_h:read_nemotron_h",
    "olmoe": "olmoe:read_olmoe",
    "pegasus": "bart:read_pegasus",
    "phimoe": "phimoe:read_phimoe",
    "plbart": "bart:read_plbart",
    "qwen2": "qwen:read_qwen2",
    "qwen2_moe": "qwen:read_qwen2_moe",
    "qwen3": "qwen:read_qwen3",
    "qwen3_moe": "qwen:read_qwen3_moe",
    "resnet": "resnet:read_resnet",
    "roberta": "bert:read_roberta",
    "t5": "t5:read_t5",
    "umt5": "t5:read_t5",
    "xlm-roberta": "bert:read_xlm_roberta",
}
"""`file:function` by model_type; files stand beside this one."""

ARCHITECTURES: Final[Mapping[str, str]] = {
    "AlbertForMaskedLM": "albert",
    "BartForConditionalGeneration": "bart",
    "BertForMaskedLM": "bert",
    "BlenderbotForConditionalGeneration": "blenderbot",
    "BlenderbotSmallForConditionalGeneration": "blenderbot-small",
    "CamembertForMaskedLM": "camembert",
    "Data2VecTextForMaskedLM": "data2vec-text",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "DistilBertForMaskedLM": "distilbert",
    "ElectraForMaskedLM": "electra",
    "ErnieForMaskedLM": "ernie",
    "GPT2LMHeadModel": "gpt2",
    "Gemma3ForCausalLM": "gemma3_text",
    "GptOssForCausalLM": "gpt_oss",
    "GraniteMoeForCausalLM": "granitemoe",
    "GraniteMoeSharedForCausalLM": "granitemoeshared",
    "LlamaForCausalLM": "llama",
    "M2M100ForConditionalGeneration": "m2m_100",
    "MBartForConditionalGeneration": "mbart",
    "MT5ForConditionalGeneration": "mt5",
    "MarianMTModel": "marian",
    "MegatronBertForMaskedLM": "megatron-bert",
    "MiniMaxM2ForCausalLM": "minimax_m2",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "ModernBertForMaskedLM": "modernbert",
    "NemotronHForCausalLM": "nemotron_h",
    "OlmoeForCausalLM": "olmoe",
    "PLBartForConditionalGeneration": "plbart",
    "PegasusForConditionalGeneration": "pegasus",
    "PhimoeForCausalLM": "phimoe",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen2MoeForCausalLM": "qwen2_moe",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
    "ResNetForImageClassification": "resnet",
    "RobertaForMaskedLM": "roberta",
    "T5ForConditionalGeneration": "t5",
    "UMT5ForConditionalGeneration": "umt5",
    "XLMRobertaForMaskedLM": "xlm-roberta",
}
"""The class whose parameters are counted; also the family of a config that states only its class."""


def find_reader(family: str) -> Reader:
    """The reader of a family of FAMILIES."""
    file, _, function = FAMILIES[family].partition(":")
    reader: Reader = getattr(import_module(f"cost_models.readers.huggingface.{file}"), function)
    return reader
