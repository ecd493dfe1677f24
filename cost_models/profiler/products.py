"""Cases of matrix work: single and grouped products, attention, convolutions."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from cost_models.operators import Attention, Conv2d
from cost_models.operators.base import Phase, Shard
from cost_models.profiler.case import Case, Work
from cost_models.profiler.features import operator_points, product_features
from cost_models.profiler.site import Site
from cost_models.profiles.measured import Point

CPU_SIDES: Final = (128, 512, 2048)
GPU_SIDES: Final = (1024, 4096, 16384)
ATTENTION: Final[Sequence[tuple[int, int, int, bool]]] = (
    (128, 8, 64, True),
    (512, 8, 64, True),
    (512, 8, 64, False),
    (512, 8, 128, True),
    (2048, 8, 64, True),
)
"""Sequence, heads, head size, causal: of a CPU; an accelerator gets sequences eight times as long."""
LONGER: Final = 8
BACKENDS: Final = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}


def gemm_case(
    site: Site, shape: tuple[int, int, int], phase: str, parts: tuple[int, ...] = (), weight: float = 0.0
) -> Case:
    """Y = x W^T of a linear layer forward (m tokens, n outputs, k inputs), and its two gradients, as autograd lays
    their operands out; `parts` are the outputs of the layer's matrices where it has several."""
    m, n, k = shape

    def forward() -> Work:
        x, weights = site.random(m, k), [site.random(part, k) for part in parts or (n,)]
        return lambda: [functional.linear(x, one) for one in weights]

    def input_gradient() -> Work:  # dx = sum of dy W, dy of m x part, W of part x n
        pairs = [(site.random(m, part), site.random(part, n)) for part in parts or (k,)]

        def run() -> Tensor:
            first, *others = [gradient @ stored for gradient, stored in pairs]
            return sum(others, start=first)

        return run

    def weight_gradient() -> Work:  # dW = dy^T x, dy of k tokens x part
        x, gradients = site.random(k, m), [site.random(k, part) for part in parts or (n,)]
        return lambda: [gradient.t() @ x for gradient in gradients]

    makers = {"forward": forward, "input_gradient": input_gradient, "weight_gradient": weight_gradient}
    point = Point(
        kind="kernel",
        name="gemm",
        phase=phase,
        precision=site.precision,
        processes=site.processes,
        features=product_features(m, n, k, 1, site.element_bytes),
    )
    return Case(point, makers[phase], weight)


def gemm_grid(site: Site) -> Iterator[Case]:
    """Products over a grid of sides, smallest first; the gradients' layouts of the square ones."""
    sides = GPU_SIDES if site.device.type == "cuda" else CPU_SIDES
    shapes = sorted(product(sides, sides, sides), key=lambda s: s[0] * s[1] * s[2])
    for shape in shapes:
        yield gemm_case(site, shape, "forward")
    for side in sides:
        for phase in ("input_gradient", "weight_gradient"):
            yield gemm_case(site, (side, side, side), phase)


def grouped_cases(site: Site) -> Iterator[Case]:
    """Products of several experts in one call; on devices without such a kernel the case fails and says so."""
    large = site.device.type == "cuda"
    rows, width = (1024, 2048) if large else (64, 256)
    for experts, m in ((4, rows), (8, rows), (8, rows // 4)):
        yield _grouped_case(site, experts, (m, width, width))


def _grouped_case(site: Site, experts: int, shape: tuple[int, int, int]) -> Case:
    m, n, k = shape

    def make() -> Work:
        x, weight = site.random(experts * m, k), site.random(experts, k, n)
        ends = torch.arange(m, experts * m + 1, m, device=site.device, dtype=torch.int32)
        grouped: Any = getattr(torch, "_grouped_mm", None)
        if grouped is None:
            parts = list(zip(x.view(experts, m, k), weight, strict=True))
            return lambda: [part @ one for part, one in parts]
        return lambda: grouped(x, weight, offs=ends)

    point = Point(
        kind="kernel",
        name="grouped_gemm",
        phase="forward",
        precision=site.precision,
        processes=site.processes,
        features=product_features(m, n, k, experts, site.element_bytes),
    )
    return Case(point, make)


def attention_cases(site: Site) -> Iterator[Case]:
    """Fused attention forward and backward by sequence, head size and mask; then each of torch's kernels by name."""
    factor = LONGER if site.device.type == "cuda" else 1
    for seq_len, heads, size, causal in ATTENTION:
        yield from _attention(site, (seq_len * factor, heads, size, causal), "")
    for name in BACKENDS:
        yield from _attention(site, (512 * factor, 8, 64, True), name)


def _attention(site: Site, shape: tuple[int, int, int, bool], backend: str) -> Iterator[Case]:
    seq_len, heads, size, causal = shape
    operator = Attention(
        name="attention", heads=heads, kv_heads=heads, qk_dim=size, v_dim=size, causal=causal
    )
    at = Shard(1.0, float(seq_len), float(seq_len))
    points = operator_points(operator, at, site.style, site.precision, site.processes)

    def attend(grad: bool) -> tuple[Any, list[Any]]:
        q, k, v = (site.random(1, heads, seq_len, size, grad=grad) for _ in range(3))
        return lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=causal), [q, k, v]

    def within(run: Work) -> Work:
        if not backend:
            return run

        def chosen() -> object:
            with sdpa_kernel(BACKENDS[backend]):
                return run()

        return chosen

    def forward() -> Work:
        return within(attend(True)[0])

    def backward() -> Work:
        run, inputs = attend(True)
        out: Any = within(run)()
        gradient = torch.ones_like(out)
        return lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True)

    for phase, make in ((Phase.FORWARD, forward), (Phase.INPUT_GRADIENT, backward)):
        point = points[phase]
        if backend:
            point = point.model_copy(update={"name": f"backend:{backend}"})
        yield Case(point, make)


def convolution_cases(site: Site) -> Iterator[Case]:
    """A 3 x 3 convolution of ResNet's shapes, forward and backward."""
    batch = 32 if site.device.type == "cuda" else 2
    for channels, side in ((64, 56), (128, 28), (256, 14)):
        yield from _convolution(site, batch, channels, side)


def _convolution(site: Site, batch: int, channels: int, side: int) -> Iterator[Case]:
    operator = Conv2d(name="conv", in_channels=channels, out_channels=channels, kernel_size=3, downsample=1)
    at = Shard(float(batch), 1.0, 1.0, side)
    points = operator_points(operator, at, site.style, site.precision, site.processes)

    def tensors() -> tuple[Any, Any]:
        return site.random(batch, channels, side, side, grad=True), site.random(
            channels, channels, 3, 3, grad=True
        )

    def forward() -> Work:
        x, weight = tensors()
        return lambda: functional.conv2d(x, weight, padding=1)

    def gradient(index: int) -> Work:
        pair = tensors()
        out = functional.conv2d(*pair, padding=1)
        ones = torch.ones_like(out)
        return lambda: torch.autograd.grad(out, pair[index], ones, retain_graph=True)

    makers = {
        Phase.FORWARD: forward,
        Phase.INPUT_GRADIENT: lambda: gradient(0),
        Phase.WEIGHT_GRADIENT: lambda: gradient(1),
    }
    for phase, point in points.items():
        yield Case(point, makers[phase])
