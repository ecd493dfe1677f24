"""Cases of a model's own layers: every operator as the executor runs it, and every kind of layer as a whole."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor, nn

from cost_models.operators import Linear, LmHead
from cost_models.operators.base import Operator, Phase, Shard, Style
from cost_models.profiler.case import Case, Fresh, Work
from cost_models.profiler.features import operator_points
from cost_models.profiler.products import gemm_case
from cost_models.profiler.site import Site
from cost_models.profiles.measured import Point
from cost_models.rows import stack_shard
from cost_models.specs.model import Layer, ModelSpec, Role
from planner.executor.model.block import Block
from planner.executor.model.build import build_chunk, whole
from planner.executor.model.chunk import ChunkModule
from planner.executor.model.options import BuildOptions
from planner.executor.model.wiring import INPUT
from planner.situation import Situation

FLOPS_A_BYTE: Final = {False: 20.0, True: 200.0}
"""Products over traffic of a core (100 GFLOP/s, 5 GB/s) and of an accelerator, to order cases by."""
LOSSES: Final = ("cross_entropy", "class_loss")


@dataclass(frozen=True, slots=True)
class Bench:
    """One layer of every kind, built, for micro-batches of one size."""

    situation: Situation
    site: Site
    mbs: int
    layers: tuple[Layer, ...]
    chunk: ChunkModule
    inputs: tuple[Tensor, ...]
    """What each layer reads."""
    targets: Tensor


def chunk_of(situation: Situation, site: Site) -> ChunkModule:
    """One layer of every kind, built; sizes of batches have no part in it."""
    small = one_of_each(situation.model)
    options = BuildOptions(
        dtype=torch.float32, device=str(site.device), attention=situation.engine.options.attention
    )
    return build_chunk(small, whole(small), options)


def bench_of(situation: Situation, site: Site, mbs: int, chunk: ChunkModule) -> Bench:
    """Run a batch through one layer of every kind."""
    small = one_of_each(situation.model)
    x, targets = _batch(situation, site, mbs)
    inputs = []
    with torch.no_grad(), _autocast(site):
        for block in chunk.layers.values():
            inputs.append(x)
            x = block(x)
    return Bench(situation, site, mbs, small.layers, chunk, tuple(inputs), targets)


def one_of_each(model: ModelSpec) -> ModelSpec:
    """The model with one layer of every kind, in order; prediction layers are left out."""
    kept: dict[str, Layer] = {}
    for layer in model.layers:
        if layer.role is not Role.MTP:
            kept.setdefault(layer.kind, layer.model_copy(update={"count": 1}))
    return model.model_copy(update={"layers": tuple(kept.values())})


def operator_cases(bench: Bench) -> Iterator[Case]:
    """Every operator of every kind of layer, each phase on its own."""
    for layer, block, x in zip(bench.layers, bench.chunk.layers.values(), bench.inputs, strict=True):
        assert isinstance(block, Block)
        operators = {
            operator.name: operator for operator in bench.situation.model.kinds[layer.kind].operators
        }
        times = sum(one.count for one in bench.situation.model.layers if one.kind == layer.kind)
        held = {INPUT: x}
        for step in [step for segment in block.segments for step in segment.steps]:
            inputs = tuple(held[key] for key in step.inputs)
            call = block.calls[step.module]
            with torch.no_grad(), _autocast(bench.site):
                out = call(*inputs)
            held.update(zip(step.outputs, out if isinstance(out, tuple) else (out,), strict=True))
            operator = operators.get(step.module)
            if operator is not None:
                yield from _phases(bench, operator, layer, _Step(call, inputs, times))


def divided_cases(situation: Situation, site: Site, mbs: int, tp: int) -> Iterator[Case]:
    """The products of a rank of a tensor-parallel group."""
    style = _style(situation, site)
    for layer in one_of_each(situation.model).layers:
        at = replace(shard_of(situation, layer, mbs), tp=tp)
        for operator in situation.model.kinds[layer.kind].operators:
            if not isinstance(operator, Linear | LmHead) or getattr(operator, "per_sample", False):
                continue
            parts = _local_parts(operator, tp)
            for point in operator_points(operator, at, style, site.precision, site.processes).values():
                shape = tuple(round(point.features[name]) for name in ("m", "n", "k"))
                if min(shape) > 0 and all(part > 0 for part in parts):
                    yield gemm_case(
                        site, (shape[0], shape[1], shape[2]), point.phase, parts, _weight(site, point)
                    )


def layer_cases(bench: Bench) -> Iterator[Case]:
    """Forward and backward of a whole layer of every kind; the loss stands with the last."""
    last = len(bench.layers) - 1
    for index, (layer, block, x) in enumerate(
        zip(bench.layers, bench.chunk.layers.values(), bench.inputs, strict=True)
    ):
        run = _whole_layer(bench, block, last=index == last)
        parameters = [p for p in block.parameters() if p.requires_grad]
        step = _Step(run, (x,), layer.count, tuple(parameters))
        backward = _fresh_backward if index == last else _backward_of_all
        for phase, maker in (("forward", _forward), ("backward", backward)):
            yield Case(layer_point(bench, layer, phase), _bound(maker, bench.site, step))


def layer_point(bench: Bench, layer: Layer, phase: str) -> Point:
    """The point of one pass of a whole layer."""
    tokens = float(bench.inputs[0].shape[0] * (bench.inputs[0].shape[1] if bench.inputs[0].dim() == 2 else 1))
    return Point(
        kind="layer",
        name=layer.kind,
        phase=phase,
        precision=bench.site.precision,
        processes=bench.site.processes,
        features={"sequences": float(bench.mbs), "tokens": tokens},
        label=f"{layer_label(bench.situation)} mbs={bench.mbs}",
    )


def layer_label(situation: Situation) -> str:
    """The model and its positions (or pixels): what tells the layers of one question from another's."""
    return f"{situation.model.name} s{situation.job.seq_len or situation.job.image_size}"


def saved_bytes(bench: Bench, index: int) -> float:
    """Bytes that a layer's forward keeps for its backward, each storage once, parameters left out."""
    block, x = list(bench.chunk.layers.values())[index], bench.inputs[index]
    own = {p.untyped_storage().data_ptr() for p in block.parameters()}
    seen: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    run = _whole_layer(bench, block, last=index == len(bench.layers) - 1)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), _autocast(bench.site):
        out = run(_leaf(x))
        del out
    return float(sum(seen.values()))


@dataclass(frozen=True, slots=True)
class _Step:
    """A call with its inputs; `times` it stands in the model."""

    call: Callable[..., Any]
    inputs: tuple[Tensor, ...]
    times: int
    parameters: tuple[Tensor, ...] = ()


def _phases(bench: Bench, operator: Operator, layer: Layer, step: _Step) -> Iterator[Case]:
    site = bench.site
    at, style = shard_of(bench.situation, layer, bench.mbs), _style(bench.situation, site)
    points = operator_points(operator, at, style, site.precision, site.processes)
    module = step.call if isinstance(step.call, nn.Module) else None
    parameters = tuple(p for p in module.parameters() if p.requires_grad) if module is not None else ()
    family = getattr(operator, "family", "")
    if family in LOSSES:
        step = replace(step, call=lambda logits: bench.chunk.loss.total(logits, bench.targets))
    step = replace(step, parameters=parameters)
    makers = {
        Phase.FORWARD: _forward,
        Phase.INPUT_GRADIENT: _input_gradient,
        Phase.WEIGHT_GRADIENT: _weight_gradient,
    }
    if Phase.WEIGHT_GRADIENT not in points:
        makers[Phase.INPUT_GRADIENT] = _fresh_backward if family in LOSSES else _backward_of_all
    for phase, point in points.items():
        yield Case(point, _bound(makers[phase], site, step), _weight(site, point) * step.times)


def _weight(site: Site, point: Point) -> float:
    """What a case counts for in a step: its FLOP, and its bytes at the FLOP that the device makes meanwhile; shares of
    the step are made of them later."""
    each = FLOPS_A_BYTE[site.device.type == "cuda"]
    return point.features.get("flops", 0.0) + each * point.features.get("bytes", 0.0)


def _bound(maker: Callable[[Site, _Step], Work], site: Site, step: _Step) -> Callable[[], Work]:
    return lambda: maker(site, step)


def _forward(site: Site, step: _Step) -> Work:
    inputs = _leaves(step.inputs)

    def run() -> object:
        with _autocast(site):
            return step.call(*inputs)

    return run


def _input_gradient(site: Site, step: _Step) -> Work:
    inputs = _leaves(step.inputs)
    return _gradient(site, step, inputs, [x for x in inputs if x.requires_grad])


def _weight_gradient(site: Site, step: _Step) -> Work:
    return _gradient(site, step, list(step.inputs), list(step.parameters))


def _backward_of_all(site: Site, step: _Step) -> Work:
    inputs = _leaves(step.inputs)
    return _gradient(site, step, inputs, [*(x for x in inputs if x.requires_grad), *step.parameters])


def _fresh_backward(site: Site, step: _Step) -> Work:
    """For a loss whose backward overwrites the logits: the forward pass runs again before every call."""
    return Fresh(lambda: _backward_of_all(site, step))


def _gradient(site: Site, step: _Step, inputs: list[Tensor], wanted: list[Tensor]) -> Work:
    with _autocast(site):
        found = step.call(*inputs)
    outputs = [out for out in (found if isinstance(found, tuple) else (found,)) if out.grad_fn is not None]
    ones = [torch.ones_like(out) for out in outputs]
    if not outputs or not wanted:
        return lambda: None
    return lambda: torch.autograd.grad(outputs, wanted, ones, retain_graph=True, allow_unused=True)


def _leaves(inputs: tuple[Tensor, ...]) -> list[Tensor]:
    return [_leaf(x) for x in inputs]


def _leaf(x: Tensor) -> Tensor:
    return x.detach().requires_grad_(x.is_floating_point())


def _whole_layer(bench: Bench, block: nn.Module, *, last: bool) -> Callable[[Tensor], Tensor]:
    if not last:
        return block
    return lambda x: bench.chunk.loss.total(block(x), bench.targets)


def _batch(situation: Situation, site: Site, mbs: int) -> tuple[Tensor, Tensor]:
    model, job = situation.model, situation.job
    if model.is_vision:
        classes = max(model.vocab_size, 2)
        images = torch.randn(mbs, 3, job.image_size, job.image_size, device=site.device)
        return images, torch.randint(0, classes, (mbs,), device=site.device)
    shape = (mbs, job.seq_len)
    ids = torch.randint(0, model.vocab_size, shape, device=site.device)
    return ids, torch.randint(0, model.vocab_size, shape, device=site.device)


def shard_of(situation: Situation, layer: Layer, mbs: int) -> Shard:
    """One micro-batch on one rank, as the cost model counts it."""
    at = Shard(float(mbs), 1.0, 1.0, situation.job.image_size, load=situation.job.options.moe_imbalance)
    return stack_shard(situation.model, situation.job, layer.stack, at)


def _style(situation: Situation, site: Site) -> Style:
    return situation.engine.style(situation.job, "ring")


def _local_parts(operator: Operator, tp: int) -> tuple[int, ...]:
    """Outputs of the matrices of a column-parallel linear on one rank; one matrix for all others."""
    if not isinstance(operator, Linear) or len(operator.parts) == 1 or operator.split != "column":
        return ()
    return tuple(part.features // min(tp, part.max_shards or tp) for part in operator.parts)


def _autocast(site: Site) -> torch.autocast:
    """The compute dtype over fp32 weights, as engines of plain torch run."""
    return torch.autocast(site.device.type, dtype=site.dtype, enabled=site.dtype is not torch.float32)
