"""ResNet: stem, four stages of basic or bottleneck blocks, pooling and classifier; one block is one layer."""

from collections.abc import Mapping
from dataclasses import dataclass

from cost_models.operators import BatchNorm, Conv2d, Pool
from cost_models.operators.base import Operator
from cost_models.readers.blocks.layers import layer_kind, runs
from cost_models.readers.huggingface.config import MAX_LAYERS, Config, Default, options, sizes
from cost_models.readers.huggingface.vision import class_labels, classifier
from cost_models.specs.model import Layer, LayerKind, ModelSpec, Role, Stack

BOTTLENECK_REDUCTION = 4
"""A bottleneck block's inner width is a fourth of its outer one (He et al. 2015, figure 5)."""
BASE_WIDTH = 64
"""width_per_group of a ResNet as torchvision builds it (torchvision/models/resnet.py)."""
STEM_STRIDE = 4
"""Convolution of stride 2 and max pooling of stride 2."""

DEFAULTS: Mapping[str, Default] = {
    **sizes(
        num_channels=3,
        embedding_size=64,
        hidden_sizes=(256, 512, 1024, 2048),
        depths=(3, 4, 6, 3),
        layer_type="bottleneck",
        downsample_in_first_stage=False,
    ),
    **options(downsample_in_bottleneck=False, hidden_act="relu", image_size=224),
    "num_labels": Default(2),
}
"""ResNetConfig of transformers 5.24; 224 pixels is what the published models were trained on."""


@dataclass(frozen=True, slots=True)
class Block:
    """One residual block: channels in and out, stride, and the cumulative stride after it."""

    inside: int
    outside: int
    stride: int
    downsample: int
    inner: int
    """Channels between the first and the last convolution of a bottleneck, 0 in a basic block."""
    stride_first: bool

    def operators(self) -> tuple[Operator, ...]:
        """Main path, shortcut where the shape changes, addition and ReLU."""
        found: list[Operator] = []
        source = "x"
        for index, (channels, kernel, stride) in enumerate(self._convolutions()):
            last = index == len(self._convolutions()) - 1
            before = self._channels_before(index)
            found += self._convolution(f"conv{index}", source, (before, channels), (kernel, stride), index)
            source = found[-1].name
            if not last:
                found.append(self._relu(f"relu{index}", source, channels, index))
                source = found[-1].name
        shortcut = "x"
        if self.inside != self.outside or self.stride != 1:
            found += [
                *conv_norm("shortcut", "x", (self.inside, self.outside), (1, self.stride), self.downsample)
            ]
            shortcut = "shortcut_norm"
        found.append(
            Pool(
                name="add",
                inputs=(source, shortcut),
                kind="add",
                channels=self.outside,
                downsample=self.downsample,
            )
        )
        found.append(Pool(name="out", inputs=("add",), channels=self.outside, downsample=self.downsample))
        return tuple(found)

    def _convolutions(self) -> tuple[tuple[int, int, int], ...]:
        """(out channels, kernel, stride) of the main path."""
        if not self.inner:
            return ((self.outside, 3, self.stride), (self.outside, 3, 1))
        inner = self.inner
        first, second = (self.stride, 1) if self.stride_first else (1, self.stride)
        return ((inner, 1, first), (inner, 3, second), (self.outside, 1, 1))

    def _channels_before(self, index: int) -> int:
        return self._convolutions()[index - 1][0] if index else self.inside

    def _downsample_after(self, index: int) -> int:
        left = 1
        for _, _, stride in self._convolutions()[index + 1 :]:
            left *= stride
        return self.downsample // left

    def _convolution(
        self, name: str, source: str, channels: tuple[int, int], kernel_stride: tuple[int, int], index: int
    ) -> tuple[Operator, ...]:
        return conv_norm(name, source, channels, kernel_stride, self._downsample_after(index))

    def _relu(self, name: str, source: str, channels: int, index: int) -> Pool:
        return Pool(name=name, inputs=(source,), channels=channels, downsample=self._downsample_after(index))


def conv_norm(
    name: str, source: str, channels: tuple[int, int], kernel_stride: tuple[int, int], downsample: int
) -> tuple[Operator, ...]:
    """A convolution without bias and its batch normalisation, `<name>_norm`."""
    convolution = Conv2d(
        name=name,
        inputs=(source,),
        in_channels=channels[0],
        out_channels=channels[1],
        kernel_size=kernel_stride[0],
        stride=kernel_stride[1],
        downsample=downsample,
    )
    norm = BatchNorm(name=f"{name}_norm", inputs=(name,), channels=channels[1], downsample=downsample)
    return (convolution, norm)


def read_resnet(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type resnet with its classifier."""
    config = Config(raw, DEFAULTS, "resnet")
    widths, depths = config.integers("hidden_sizes"), config.integers("depths")
    if len(widths) != len(depths):
        raise config.contradiction(
            "depths",
            f"depths has {len(depths)} stages but hidden_sizes has {len(widths)}; make the two agree",
        )
    if sum(depths) > MAX_LAYERS:
        raise config.contradiction(
            "depths", f"depths add up to {sum(depths)} blocks; use at most {MAX_LAYERS}"
        )
    kinds, order, downsample = residual_stages(config, widths, depths)
    labels = class_labels(config, raw)
    embedding = config.integer("embedding_size")
    kinds["embedding"] = layer_kind("embedding", stem(config, embedding), embedding)
    kinds["embedding"] = _spatial(kinds["embedding"], STEM_STRIDE)
    head = _spatial(
        layer_kind("head", _head(widths[-1], downsample, labels), labels, cut_after=False), downsample
    )
    kinds["head"] = head
    return ModelSpec(
        name=name,
        family="resnet",
        layers=(
            Layer(kind="embedding", role=Role.EMBEDDING, stack="vision"),
            *runs(order, stack="vision"),
            Layer(kind="head", role=Role.HEAD, stack="vision"),
        ),
        kinds=kinds,
        stacks=(Stack(name="vision", length="image_size"),),
        hidden_size=widths[-1],
        image_size=config.integer("image_size", high=MAX_LAYERS),
        semantics={"norm": "batch", "activation": config.text("hidden_act"), "classes": labels},
        assumed=config.assumed,
        reader="huggingface",
    )


def _spatial(kind: LayerKind, downsample: int) -> LayerKind:
    return kind.model_copy(update={"boundary_downsample": downsample})


def residual_stages(
    config: Config, widths: tuple[int, ...], depths: tuple[int, ...]
) -> tuple[dict[str, LayerKind], list[str], int]:
    """Kinds and their order: a stage's first block changes channels and resolution, the rest are alike."""
    bottleneck = config.text("layer_type", ("basic", "bottleneck")) == "bottleneck"
    wider = _wider(config, bottleneck)
    early = config.flag("downsample_in_bottleneck")
    first_stage = config.flag("downsample_in_first_stage")
    kinds: dict[str, LayerKind] = {}
    order: list[str] = []
    inside, downsample = config.integer("embedding_size"), STEM_STRIDE
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True), start=1):
        if bottleneck and width % BOTTLENECK_REDUCTION:
            raise config.contradiction(
                "hidden_sizes",
                f"hidden_sizes {width} is not a multiple of 4, as a bottleneck needs; change it",
            )
        stride = 2 if stage > 1 or first_stage else 1
        downsample *= stride
        for name, channels, step, count in (
            (f"stage{stage}_first", inside, stride, 1),
            (f"stage{stage}", width, 1, depth - 1),
        ):
            if count:
                inner = width // BOTTLENECK_REDUCTION * wider if bottleneck else 0
                block = Block(channels, width, step, downsample, inner, early)
                kinds[name] = _spatial(layer_kind(name, block.operators(), width), downsample)
                order += [name] * count
        inside = width
    return kinds, order, downsample


def _wider(config: Config, bottleneck: bool) -> int:
    """How many times wider a bottleneck is: width_per_group / 64, as torchvision names it (WideResNet: 128)."""
    if not config.listed("width_per_group"):
        return 1
    width = config.integer("width_per_group", high=BASE_WIDTH * 64)
    if width % BASE_WIDTH or not bottleneck:
        raise config.contradiction(
            "width_per_group",
            f"width_per_group {width} must be a multiple of {BASE_WIDTH}, of bottleneck layers; change or drop it",
        )
    return width // BASE_WIDTH


def stem(config: Config, width: int) -> tuple[Operator, ...]:
    """The first convolution and the maximum over its positions."""
    channels = (config.integer("num_channels", high=MAX_LAYERS), width)
    return (
        *conv_norm("stem", "x", channels, (7, 2), 2),
        Pool(name="stem_relu", inputs=("stem_norm",), channels=width, downsample=2),
        Pool(
            name="pool", inputs=("stem_relu",), kind="max", channels=width, downsample=STEM_STRIDE, stride=2
        ),
    )


def _head(width: int, downsample: int, labels: int) -> tuple[Operator, ...]:
    return (
        Pool(name="average", kind="average", channels=width, downsample=downsample),
        *classifier("average", width, labels),
    )
