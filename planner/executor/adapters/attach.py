"""Puts a job's adapters into a built chunk, and freezes what it does not train."""

from torch import nn

from cost_models.operators import LoraAdapter
from cost_models.specs.model import Layer, ModelSpec
from planner.executor.adapters.pairs import AdapterOptions, ExpertPair, Pair
from planner.executor.model.chunk import ChunkModule
from planner.executor.model.operators.experts import GroupedLinearModule
from planner.executor.model.operators.linear import LinearModule
from planner.executor.model.options import BuildOptions
from planner.executor.model.parameters import Maker
from planner.executor.request import RunOrder

ENDING = "_lora"
"""Of an adapter's name, after its linear's (cost_models.fine_tuning)."""


def attach(chunk: ChunkModule, model: ModelSpec, build: BuildOptions, options: AdapterOptions) -> None:
    """Freeze the operators that the model marks, and put its adapters beside their linears.

    The chunk was built of the model without adapters by the same build options; its parameters keep their names.
    """
    tied: dict[str, nn.Parameter] = {}
    layers = [layer for layer in model.layers for _ in range(layer.count)]
    for name, block in chunk.layers.items():
        layer = layers[int(name)]
        for operator in model.kinds[layer.kind].operators:
            if isinstance(operator, LoraAdapter):
                linear = operator.name.removesuffix(ENDING)
                maker = _maker(build, (name, linear), layer, tied)
                _put(block.get_submodule(linear), operator, maker, options)
            elif operator.frozen:
                block.get_submodule(operator.name).requires_grad_(False)


def adapters_of(order: RunOrder) -> AdapterOptions:
    """How the job's adapters are made; those of a comparison begin with both matrices drawn."""
    trainable = order.situation.job.trainable
    scale = order.options.lora_scale(trainable.rank)
    return AdapterOptions(trainable.targets, scale, zero=order.options.lora_init == "zero")


def _maker(build: BuildOptions, names: tuple[str, str], layer: Layer, tied: dict[str, nn.Parameter]) -> Maker:
    """Layers that share their weights share adapters too."""
    index, linear = names
    shared = layer.shares and f"{layer.shares}/{layer.kind}/{linear}/adapters"
    return Maker(build, f"layers.{index}.{linear}.adapters", shared, tied)


def _put(module: nn.Module, adapter: LoraAdapter, maker: Maker, options: AdapterOptions) -> None:
    if isinstance(module, GroupedLinearModule):
        module.adapters = ExpertPair(adapter, module.names, maker, options)
    elif isinstance(module, LinearModule):
        names = adapted_parts(adapter, module.names, options.targets)
        features = dict(zip(names, adapter.parts, strict=True))
        module.adapters = nn.ModuleDict(
            {name: Pair(adapter, features[name], _inside(maker, name), options) for name in names}
        )


def adapted_parts(adapter: LoraAdapter, parts: tuple[str, ...], targets: tuple[str, ...]) -> list[str]:
    """The parts of a linear that its adapter stands beside, as cost_models.fine_tuning chooses them."""
    wanted = {name.removesuffix("_proj") for name in targets}
    whole = not wanted or adapter.name.removesuffix(ENDING) in wanted
    return [name for name in parts if whole or name in wanted]


def _inside(maker: Maker, name: str) -> Maker:
    shared = maker.shared and f"{maker.shared}/{name}"
    return Maker(maker.options, f"{maker.prefix}.{name}", shared, maker.tied)
