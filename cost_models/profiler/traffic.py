"""Cases bound by bytes: norms, activations, embedding, cross entropy, copies, the optimizer's step, a launch."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional

from cost_models.operators import Activation, CrossEntropy, Embedding, Norm, Residual, Rope
from cost_models.operators.base import Operator, Phase, Shard
from cost_models.profiler.case import Case, Work
from cost_models.profiler.features import operator_points
from cost_models.profiler.site import Site
from cost_models.profiles.measured import Point
from cost_models.roofline.measured import ACCUMULATE, COPY, OPTIMIZER

CPU_TOKENS: Final = (16, 256, 2048)
GPU_TOKENS: Final = (256, 4096, 32768)
CPU_WIDTH: Final = 512
GPU_WIDTH: Final = 4096
VOCABULARY: Final = 8192
ADAMW_BYTES: Final = 28.0
"""Traffic of a fused AdamW of fp32 states an element: parameter, gradient and two moments read, all but the gradient
written."""
LAUNCH: Final = "launch"
CPU_ELEMENTS: Final = (10_000, 300_000, 10_000_000)
GPU_ELEMENTS: Final = (100_000, 10_000_000, 500_000_000)
LARGEST_CHUNK: Final = 4_000_000
"""Elements of one parameter of the optimizer's case: a model is many tensors."""

Build = Callable[[int], tuple[Callable[..., Tensor], Sequence[Tensor]]]


def traffic_cases(site: Site) -> Iterator[Case]:
    """Operators of a transformer that are bound by bytes, over token counts."""
    large = site.device.type == "cuda"
    width = GPU_WIDTH if large else CPU_WIDTH
    for tokens in GPU_TOKENS if large else CPU_TOKENS:
        for operator, build in _operators(site, width):
            yield from _both_ways(site, operator, build, tokens)


def copy_cases(site: Site) -> Iterator[Case]:
    """Copies, sums of gradients, and AdamW's step with its clipping, over element counts; a launch of nothing."""
    for elements in GPU_ELEMENTS if site.device.type == "cuda" else CPU_ELEMENTS:
        for name, each, build in (
            (COPY, 2.0 * site.element_bytes, _copy),
            (ACCUMULATE, 3.0 * 4.0, _accumulate),
            (OPTIMIZER, ADAMW_BYTES, _adamw),
        ):
            yield Case(_plain(site, name, elements * each), _bound(build, site, elements))
    yield Case(_plain(site, LAUNCH, 1.0), _bound(_launch, site, 1))


def _operators(site: Site, width: int) -> list[tuple[Operator, Build]]:
    weight, table = site.random(width, grad=True), site.random(VOCABULARY, width, grad=True)

    def ids(tokens: int) -> Tensor:
        return torch.randint(0, VOCABULARY, (tokens,), device=site.device)

    def swiglu(gate: Tensor, up: Tensor) -> Tensor:
        return functional.silu(gate) * up

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        return functional.cross_entropy(logits.float(), targets, reduction="sum")

    def halves(tokens: int) -> Sequence[Tensor]:
        return [site.random(tokens, width, grad=True) for _ in range(2)]

    def rotate(x: Tensor, cos: Tensor) -> Tensor:
        return x * cos + torch.cat((-x[..., width // 2 :], x[..., : width // 2]), -1) * cos

    rms: Any = functional.rms_norm
    return [
        (
            Norm(name="norm", kind="rms", width=width),
            lambda n: (lambda x: rms(x, (width,), weight), halves(n)[:1]),
        ),
        (
            Norm(name="norm", kind="layer", width=width),
            lambda n: (lambda x: functional.layer_norm(x, (width,), weight), halves(n)[:1]),
        ),
        (
            Activation(name="act", function="silu", width=width, gated=True),
            lambda n: (swiglu, halves(n)),
        ),
        (Activation(name="act", function="gelu", width=width), lambda n: (functional.gelu, halves(n)[:1])),
        (Residual(name="add", width=width), lambda n: (torch.add, halves(n))),
        (Rope(name="rope", width=width), lambda n: (rotate, [halves(n)[0], site.random(n, width)])),
        (
            Embedding(name="table", vocab_size=VOCABULARY, width=width),
            lambda n: (functional.embedding, [ids(n), table]),
        ),
        (
            CrossEntropy(name="loss", vocab_size=VOCABULARY),
            lambda n: (loss, [site.random(n, VOCABULARY, grad=True), ids(n)]),
        ),
    ]


def _both_ways(site: Site, operator: Operator, build: Build, tokens: int) -> Iterator[Case]:
    at = Shard(1.0, float(tokens), float(tokens))
    points = operator_points(operator, at, site.style, site.precision, site.processes)

    def forward() -> Work:
        run, inputs = build(tokens)
        return lambda: run(*inputs)

    def backward() -> Work:
        run, inputs = build(tokens)
        out = run(*inputs)
        ones, wanted = torch.ones_like(out), [x for x in inputs if x.requires_grad]
        return lambda: torch.autograd.grad(out, wanted, ones, retain_graph=True)

    for phase, make in ((Phase.FORWARD, forward), (Phase.INPUT_GRADIENT, backward)):
        if phase in points:
            yield Case(points[phase], make)


def _plain(site: Site, name: str, moved: float) -> Point:
    precision = site.precision
    return Point(
        kind="kernel",
        name=name,
        phase="forward",
        precision=precision,
        processes=site.processes,
        features={"bytes": moved},
    )


def _bound(build: Callable[[Site, int], Work], site: Site, elements: int) -> Callable[[], Work]:
    return lambda: build(site, elements)


def _copy(site: Site, elements: int) -> Work:
    x = site.random(elements)
    return x.clone


def _accumulate(site: Site, elements: int) -> Work:
    total, new = (torch.zeros(elements, device=site.device) for _ in range(2))
    return lambda: total.add_(new)


def _adamw(site: Site, elements: int) -> Work:
    """A step as the executor makes it: norm, clipping, fused AdamW, gradients set to zero."""
    sizes = [LARGEST_CHUNK] * (elements // LARGEST_CHUNK) + [elements % LARGEST_CHUNK or LARGEST_CHUNK]
    held = [torch.nn.Parameter(torch.randn(size, device=site.device)) for size in sizes]
    for parameter in held:
        parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.AdamW(held, fused=True)

    def step() -> None:
        torch.nn.utils.clip_grad_norm_(held, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    return step


def _launch(site: Site, elements: int) -> Work:
    x = site.random(elements)
    return lambda: x.add_(1.0)
