"""build_chunk: a segment of a ModelSpec's layers as an nn.Module on one rank."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from cost_models.errors import BadInput
from cost_models.operators import Activation, CrossEntropy
from cost_models.operators.base import Operator
from cost_models.specs.model import Layer, ModelSpec, Role
from planner.executor.model.block import Block
from planner.executor.model.chunk import ChunkModule, LossShape, Predictions
from planner.executor.model.chunked_head import ChunkedHead
from planner.executor.model.operators.attention import AttentionModule
from planner.executor.model.operators.convolution import BatchNormModule, Conv2dModule, PoolModule
from planner.executor.model.operators.elementwise import ActivationModule, ResidualModule
from planner.executor.model.operators.embedding import EmbeddingModule
from planner.executor.model.operators.experts import ExpertActivationModule, GroupedLinearModule
from planner.executor.model.operators.head import LmHeadModule, SoftCapModule
from planner.executor.model.operators.linear import LinearModule
from planner.executor.model.operators.moe import CombineModule, DispatchModule
from planner.executor.model.operators.norm import NormModule
from planner.executor.model.operators.rope import rope_module
from planner.executor.model.operators.routing import RouterModule
from planner.executor.model.operators.site import Site
from planner.executor.model.operators.tables import Tables
from planner.executor.model.options import BuildOptions, ChunkCut
from planner.executor.model.parameters import Maker
from planner.executor.model.recompute import recomputed
from planner.executor.model.segments import segments_of
from planner.executor.model.semantics import semantics_of
from planner.executor.model.support import unsupported_operators
from planner.executor.model.wiring import Regions, wire


def activation_module(operator: Activation, site: Site) -> nn.Module:
    """The module for tokens, or for copies of tokens on their experts."""
    return (ExpertActivationModule if operator.expert_top_k else ActivationModule)(operator, site)


MODULES: Mapping[str, Callable[[Any, Site], nn.Module]] = {
    "activation": activation_module,
    "attention": AttentionModule,
    "batch_norm": BatchNormModule,
    "class_loss": SoftCapModule,
    "combine": CombineModule,
    "conv2d": Conv2dModule,
    "cross_entropy": SoftCapModule,
    "dispatch": DispatchModule,
    "embedding": EmbeddingModule,
    "grouped_linear": GroupedLinearModule,
    "linear": LinearModule,
    "lm_head": LmHeadModule,
    "norm": NormModule,
    "pool": PoolModule,
    "residual": ResidualModule,
    "rope": rope_module,
    "router": RouterModule,
}
"""The module of each operator family."""


def build_chunk(model: ModelSpec, cut: ChunkCut, options: BuildOptions) -> ChunkModule:
    """The chunk of one rank, its weights drawn from the seed; refuses what it cannot build by name."""
    missing = unsupported_operators(model, predictions=options.train_mtp)
    if missing:
        raise BadInput(
            f"{model.name} needs {', '.join(missing)}, which the executor does not build; use another model"
        )
    tables = Tables(options.context)
    tied: dict[str, nn.Parameter] = {}
    layers: dict[int, nn.Module] = {}
    blocks, loss = 0, loss_shape(model, options)
    chosen = chosen_layers(model, cut, predictions=options.train_mtp)
    for index, layer in chosen:
        maker = Maker(options, f"layers.{index}", layer.shares and f"{layer.shares}/{layer.kind}", tied)
        site = Site(maker, semantics_of(model), model.kinds[layer.kind], tables)
        block = build_block(site, loss, hands_out=options.train_mtp and layer.role in (Role.MTP, Role.HEAD))
        if layer.role is Role.BLOCK:
            block.full_recompute = blocks < options.full_layers
            blocks += 1
        layers[index] = block
    predicting = tuple(str(index) for index, layer in chosen if layer.role is Role.MTP)
    return ChunkModule(layers, cut, loss, Predictions(predicting, options.mtp_weight))


def loss_shape(model: ModelSpec, options: BuildOptions) -> LossShape:
    """The model's loss: over tokens of a vocabulary, or over classes. A soft cap keeps its output for its backward, so
    its logits are not overwritten."""
    operators = [operator for kind in model.kinds.values() for operator in kind.operators]
    tokens = not any(operator.family == "class_loss" for operator in operators)
    capped = any(isinstance(operator, CrossEntropy) and operator.soft_cap for operator in operators)
    fused = options.fused_cross_entropy and not capped
    return LossShape(tokens, model.vocab_size, options.tensor_parallel, fused)


def whole(model: ModelSpec) -> ChunkCut:
    """The cut that holds the whole model."""
    return ChunkCut(True, True, 0, model.num_blocks)


def chosen_layers(
    model: ModelSpec, cut: ChunkCut, *, predictions: bool = False
) -> tuple[tuple[int, Layer], ...]:
    """Global index and layer of everything in the cut; multi-token-prediction layers stand with the head if at all."""
    found: list[tuple[int, Layer]] = []
    block, seen_block, index = 0, False, -1
    for layer in model.layers:
        for _ in range(layer.count):
            index += 1
            if layer.role is Role.BLOCK:
                seen_block = True
                here = cut.start <= block < cut.stop
                block += 1
            elif layer.role is Role.MTP:
                here = predictions and cut.last
            else:
                here = cut.last if seen_block else cut.first
            if here:
                found.append((index, layer))
    return tuple(found)


def build_block(site: Site, loss: LossShape, *, hands_out: bool = False) -> Block:
    """One layer's operators and how tensors pass between them; `hands_out`: what the logits are made of too."""
    operators = site.kind.operators
    modules = {operator.name: build_operator(operator, site) for operator in operators}
    regions = Regions(site.tp.size > 1, site.tp.splits_sequence)
    steps = wire(operators, regions)
    again = recomputed(site.kind, site.options.scopes, regions)
    chunks = site.options.cross_entropy_chunks
    kept = operators[-2].inputs[0] if hands_out else ""
    keys = frozenset({kept} if kept else ())
    if chunks > 1 and isinstance(operators[-1], CrossEntropy):
        segments = segments_of(steps[:-2], again, keys)
        return ChunkedHead(modules, segments, site.tp, kept, chunks=chunks, loss=loss.total)
    block = Block(modules, segments_of(steps, again, keys), site.tp, kept)
    block.random = site.options.dropout
    return block


def build_operator(operator: Operator, site: Site) -> nn.Module:
    """The operator's module, its parameters named after it."""
    family: str = getattr(operator, "family", "")
    maker = site.maker
    shared = maker.shared or operator.shares
    own = Maker(
        maker.options, f"{maker.prefix}.{operator.name}", shared and f"{shared}/{operator.name}", maker.tied
    )
    return MODULES[family](operator, Site(own, site.semantics, site.kind, site.tables))
