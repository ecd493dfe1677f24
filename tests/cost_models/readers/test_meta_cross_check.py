"""Counts of varied configs of every family equal those of models that transformers builds without memory."""

import json
import warnings
from itertools import groupby

import pytest

from cost_models.errors import InvalidModel
from cost_models.readers import FAMILIES, read_model
from cost_models.readers.huggingface.architectures import ARCHITECTURES
from cost_models.readers.huggingface.registry import SAME_CLASS
from cost_models.specs.counts import count_parameters, layer_parameters
from cost_models.specs.model import Role

pytestmark = pytest.mark.slow

CONFIGS = 8
FEWEST = 3
"""Of the configs of a family at least so many must be built and read; the rest may be illegal to either."""
NO_CLASS = {
    "Yi", "baichuan", "bailing_moe", "chatglm", "deepseek", "detr", "exaone", "internlm", "internlm2",
    "iquestcoder", "mimo", "minicpm", "mllama", "nemotron-nas", "qwen", "transfo-xl",
}  # fmt: skip
"""Read as the code published with their weights builds them: no class in transformers 5.24 does (DETR's needs timm; of
Llama 3.2 Vision the text model alone is read)."""
WITHOUT_LAYERS = {"albert", "convnext", "convnextv2", "gemma3n_text", "llava", "resnet", "swin", "swinv2"}
"""Their lists of modules are not the layers that are read (stages, shared layers, lists of matrices)."""
EXPERTS_IN_ATTENTION = {"jetmoe"}
"""Not all of their experts stand in a module of that name; their active parameters are held to the oracle's."""
OWN_HEAD = {"t5", "mt5", "umt5"}
"""The library ties these whatever the config says; published checkpoints that are untied have a head."""


class Library:
    """transformers on the meta device."""

    def __init__(self):
        self.torch = pytest.importorskip("torch")
        self.transformers = pytest.importorskip("transformers")
        self.transformers.logging.set_verbosity_error()
        self.classes = self.transformers.CONFIG_MAPPING

    def config_class(self, family):
        return self.classes[family if family in self.classes else SAME_CLASS[family]]

    def build(self, config):
        family = config["model_type"]
        of = SAME_CLASS.get(family, family)
        names = [name for name, known in ARCHITECTURES.items() if known == of]
        name = next(name for name in (*names, "LlamaForCausalLM") if hasattr(self.transformers, name))
        built = self.config_class(family).from_dict(json.loads(json.dumps(config)))
        with self.torch.device("meta"):
            model = getattr(self.transformers, name)(built)
        model.tie_weights()
        return model

    def layers(self, model):
        found: list[str] = []
        for name, module in model.named_modules():
            inside = any(name.startswith(f"{outer}.") for outer in found)
            if isinstance(module, self.torch.nn.ModuleList) and not inside:
                found.append(name)
        sizes = [[elements(layer) for layer in model.get_submodule(name)] for name in found]
        return sorted(runs(each) for each in sizes if sum(each))


def elements(module):
    return sum(parameter.numel() for parameter in module.parameters())


def runs(sizes):
    return [[size, len(list(same))] for size, same in groupby(sizes)]


def read_layers(model):
    found: dict[str, list[int]] = {}
    for layer in model.layers:
        if layer.role is Role.BLOCK or layer.kind == "merger":
            stack = found.setdefault(layer.stack, [])
            stack.extend([layer_parameters(model.kinds[layer.kind])] * layer.count)
    return sorted(runs(sizes) for sizes in found.values())


def active(built, model):
    idle = 0
    for name, module in built.named_modules():
        if name.endswith(".experts") and elements(module):
            held = elements(module)
            idle += held - held * model.num_experts_per_token // model.num_experts
    return elements(built) - idle


def as_saved(built, family):
    """The config that the library writes beside the model's weights, every key stated."""
    written = json.loads(json.dumps(built.config.to_dict(), default=str))
    return {**written, "model_type": family, "architectures": [type(built).__name__]}


def check(family, model, built, layers):
    counts = count_parameters(model)
    assert counts.parameters == elements(built), built.config
    if family not in WITHOUT_LAYERS:
        assert read_layers(model) == layers, built.config
    if model.is_moe and family not in EXPERTS_IN_ATTENTION:
        assert counts.active == active(built, model), built.config


@pytest.fixture(scope="module")
def library():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield Library()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", sorted(set(FAMILIES) - NO_CLASS))
def test_varied_configs_equal_the_built_model(family, library, varied_configs):
    defaults = library.config_class(family)().to_dict()
    compared = 0
    for config in varied_configs(family, defaults, CONFIGS):
        if family in OWN_HEAD:
            config.pop("tie_word_embeddings", None)
        try:
            built = library.build(config)
        except Exception:
            continue  # sizes that the library cannot build
        for form in (config, as_saved(built, family)):
            try:
                model = read_model(form, reader="plain")
            except InvalidModel:
                continue  # refused: never a wrong count
            check(family, model, built, library.layers(built))
            compared += 1
    assert compared >= FEWEST, family
