"""Which of torchtitan's own models a ModelSpec is: torchtitan trains the flavors in its registry."""

from typing import Final

from cost_models.specs.model import ModelSpec

FLAVORS: Final = {
    # (layers, hidden size, vocabulary, experts): module, flavor (torchtitan/models/*/config_registry.py)
    (32, 4096, 128_256, 0): ("llama3", "8B"),
    (80, 8192, 128_256, 0): ("llama3", "70B"),
    (126, 16384, 128_256, 0): ("llama3", "405B"),
    (61, 7168, 129_280, 256): ("deepseek_v3", "671B"),
    (27, 2048, 102_400, 64): ("deepseek_v3", "16B"),
    (28, 1024, 151_936, 0): ("qwen3", "0.6B"),
    (28, 2048, 151_936, 0): ("qwen3", "1.7B"),
    (40, 5120, 151_936, 0): ("qwen3", "14B"),
    (64, 5120, 151_936, 0): ("qwen3", "32B"),
    (48, 2048, 151_936, 128): ("qwen3", "30B-A3B"),
    (24, 2880, 201_088, 32): ("gpt_oss", "20b"),
    (36, 2880, 201_088, 128): ("gpt_oss", "120b"),
}


def flavor_of(model: ModelSpec) -> tuple[str, str] | None:
    """Module and flavor of a model; None where torchtitan's registry has none of its sizes."""
    return FLAVORS.get((model.num_layers, model.hidden_size, model.vocab_size, model.num_experts))


def config_name(module: str, flavor: str) -> str:
    """The registry's function: llama3_8b."""
    return f"{module}_{flavor.lower().replace('.', '_').replace('-', '_')}"
