"""What convolutional networks cost by device and layout: minimal filtering, transposes, fused passes, images."""

from dataclasses import replace

import pytest

from cost_models.input_pipeline import IMAGE_S
from cost_models.operators import BatchNorm, Conv2d, Pool
from cost_models.operators.base import Kernel, Phase, Shard, Style
from cost_models.operators.convolution import TRANSPOSED
from cost_models.profiles import load_device
from cost_models.roofline import kernel_seconds, load_efficiency, stack_kernels
from cost_models.roofline.price import MINIMAL_SHARE
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import StrategyRequest
from planner.answers import Prediction
from planner.evaluation import evaluate_many
from planner.request import CatalogModel, PresetCluster
from planner.situation import resolve

AT = Shard(256.0, 1.0, 1.0, image_size=56)
PASS = 256 * 56 * 56 * 64 * 2.0
"""Bytes of 256 maps of 56 x 56 positions and 64 channels in 16 bits."""


def convolution(**changes: int) -> Kernel:
    sizes = {"in_channels": 512, "out_channels": 512, "kernel_size": 3, "downsample": 1} | changes
    return Conv2d(name="c", inputs=("x",), **sizes).kernels(AT, Style())[0]


def seconds(kernel: Kernel, device: str, precision: str) -> float:
    spec = load_device(device)
    efficiency = replace(load_efficiency(spec.architecture), kernel_s=0.0, half_bytes=0.0)
    return float(kernel_seconds(stack_kernels([kernel]), spec, efficiency, precision)[0])


def test_minimal_filtering_is_for_fp32_and_whole_3_x_3_filters():
    three, plain = convolution(), replace(convolution(), minimal=False)
    assert three.minimal
    assert seconds(three, "v100-sxm2-16gb", "fp32") == pytest.approx(
        MINIMAL_SHARE * seconds(plain, "v100-sxm2-16gb", "fp32")
    )
    assert seconds(three, "v100-sxm2-16gb", "fp16") == seconds(plain, "v100-sxm2-16gb", "fp16")
    others = ({"kernel_size": 1}, {"stride": 2, "downsample": 2}, {"groups": 32})
    assert not any(convolution(**other).minimal for other in others)


def test_tf32_pays_for_transposes():
    device, efficiency = load_device("a100-sxm-80gb"), load_efficiency("ampere")
    kernel = convolution()
    moved = TRANSPOSED * float(kernel.bytes)
    rate = device.memory_bytes_per_s.value * efficiency.memory * efficiency.scale.memory
    spare = replace(kernel, bytes=0.0)
    assert seconds(kernel, "a100-sxm-80gb", "tf32") == pytest.approx(
        seconds(spare, "a100-sxm-80gb", "tf32") + moved / rate
    )


@pytest.mark.parametrize(
    ("kind", "fused", "forward", "backward"),
    [("relu", False, 2, 3), ("relu", True, 0, 2), ("add", False, 3, 3), ("add", True, 1, 3)],
)
def test_passes_of_point_wise_operators(kind: str, fused: bool, forward: float, backward: float):
    operator = Pool(name="p", inputs=("x",), kind=kind, channels=64, downsample=1)
    kernels = {k.phase: float(k.bytes) for k in operator.kernels(AT, Style(fused_activation=fused))}
    assert kernels.get(Phase.FORWARD, 0.0) == forward * PASS
    assert kernels[Phase.INPUT_GRADIENT] == backward * PASS


def test_channels_first_are_transposed_for_16_bits_alone():
    """Of each pass TRANSPOSED times the bytes of its operands, in rows of their own; 32 bits by precision."""
    operator = Conv2d(name="c", inputs=("x",), in_channels=512, out_channels=512, kernel_size=3, downsample=1)
    products = operator.kernels(AT, Style())
    rows = operator.kernels(AT, Style(channels_first=True))
    assert rows[: len(products)] == products
    assert [row.bytes for row in rows[len(products) :]] == [TRANSPOSED * kernel.bytes for kernel in products]
    assert [row.phase for row in rows[len(products) :]] == [kernel.phase for kernel in products]
    wide = Style(channels_first=True, compute_bytes=4.0)
    assert len(operator.kernels(AT, wide)) == len(products)


def test_normalisation_takes_three_passes_and_five():
    kernels = BatchNorm(name="n", inputs=("x",), channels=64, downsample=1).kernels(AT, Style())
    assert [float(kernel.bytes) / PASS for kernel in kernels] == [3.0, 5.0]


def step(devices: int, model: str = "resnet-50") -> Prediction:
    job = JobRequest(global_batch=64 * devices, precision="fp16", engine="ddp", optimizer="sgd")
    situation = resolve(CatalogModel(name=model), PresetCluster(name="dgx-1", devices=devices), job)
    (found,) = evaluate_many(situation, [StrategyRequest(dp=devices, mbs=64)])
    assert isinstance(found, Prediction)
    return found


def test_images_of_a_node_wait_for_each_other():
    # 64 images on each of 8 processes, of which seven wait: 64 x 7 x 4 us = 1.8 ms beside 2 ms of host work and a norm
    alone, eight = step(1).breakdown_s["other"], step(8).breakdown_s["other"]
    assert eight - alone >= 64 * 7 * IMAGE_S
    # a second node decodes its own
    assert step(16).breakdown_s["other"] - eight < 0.5 * 64 * 7 * IMAGE_S
