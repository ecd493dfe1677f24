"""ConvNeXt (Liu et al. 2022) and V2 (Woo et al. 2023): stages of depth-wise convolutions and two linears."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cost_models.operators import Conv2d, Norm, Residual, Scale
from cost_models.operators.base import Operator
from cost_models.readers.blocks.feed_forward import MlpShape, mlp_branch
from cost_models.readers.blocks.layers import layer_kind
from cost_models.readers.huggingface.config import MAX_LAYERS, Config, Default, options, sizes
from cost_models.readers.huggingface.vision import (
    Classifier,
    class_labels,
    classifier,
    classifier_model,
    ends,
    grid,
    patch_embedding,
    side,
)
from cost_models.specs.model import Layer, ModelSpec, Stack

DEFAULTS: Mapping[str, Default] = {
    **sizes(
        image_size=224,
        patch_size=4,
        num_channels=3,
        hidden_sizes=(96, 192, 384, 768),
        depths=(3, 3, 9, 3),
        layer_scale_init_value=1e-6,
        num_labels=2,
    ),
    **options(hidden_act="gelu", layer_norm_eps=1e-12),
}
"""ConvNextConfig and ConvNextV2Config of transformers 5.24."""

KERNEL = 7
"""Side of the depth-wise convolution (section 2.5)."""
EXPANSION = 4
"""The two linears are this much wider inside (section 2.4)."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: its number from 1, channels before and inside, blocks and cumulative stride."""

    number: int
    before: int
    channels: int
    depth: int
    downsample: int

    @property
    def name(self) -> str:
        """Name of the stage's kind and stack."""
        return f"stage{self.number}"


def reader(family: str) -> Callable[[Mapping[str, object], str], ModelSpec]:
    """The reader of convnext or convnextv2, with its classifier."""
    return lambda raw, name: _read(Config(raw, DEFAULTS, family), name, raw)


def _read(config: Config, name: str, raw: Mapping[str, object]) -> ModelSpec:
    stages, labels = _stages(config), class_labels(config, raw)
    width, last = stages[0].channels, stages[-1]
    stem = (patch_embedding(config, width), _norm("stem_norm", "patches", width))
    kinds = {"embedding": layer_kind("embedding", stem, width)}
    layers: list[Layer] = []
    for stage in stages:
        rest = stage.depth
        if stage.number > 1:
            first = f"{stage.name}_first"
            operators = (*_halve(stage), *_block(config, stage, "halve"))
            kinds[first] = layer_kind(first, operators, stage.channels)
            layers.append(Layer(kind=first, stack=stage.name))
            rest -= 1
        if rest:
            kinds[stage.name] = layer_kind(stage.name, _block(config, stage, "x"), stage.channels)
            layers.append(Layer(kind=stage.name, stack=stage.name, count=rest))
    head = (_norm("final_norm", "x", last.channels), *classifier("final_norm", last.channels, labels))
    kinds["head"] = layer_kind("head", head, last.channels, cut_after=False)
    start, end = ends(stages[0].name, last.name)
    parts = Classifier(
        name=name,
        hidden=last.channels,
        heads=0,
        layers=(start, *layers, end),
        kinds=kinds,
        stacks=tuple(
            Stack(name=stage.name, length="image_size", patch_size=stage.downsample) for stage in stages
        ),
        semantics={
            "norm": "layer",
            "norm_eps": config.number("layer_norm_eps"),
            "activation": config.text("hidden_act"),
            "classes": labels,
        },
    )
    return classifier_model(config, parts)


def _stages(config: Config) -> tuple[Stage, ...]:
    channels, depths = config.integers("hidden_sizes"), config.integers("depths")
    stated = config.count("num_stages") if config.listed("num_stages") else len(depths)
    if not len(channels) == len(depths) == stated or not depths:
        raise config.contradiction(
            "depths",
            f"depths has {len(depths)} stages, hidden_sizes {len(channels)} and num_stages is {stated}; "
            "make them agree",
        )
    if sum(depths) > MAX_LAYERS:
        raise config.contradiction(
            "depths", f"depths add up to {sum(depths)} blocks; use at most {MAX_LAYERS}"
        )
    if grid(config) < 2 ** (len(depths) - 1):
        raise config.contradiction(
            "depths",
            f"depths has {len(depths)} stages, more than {grid(config)} patches a side can be halved; use fewer",
        )
    patch = side(config, "patch_size")
    return tuple(
        Stage(
            number=index + 1,
            before=channels[max(index - 1, 0)],
            channels=channels[index],
            depth=depth,
            downsample=patch * 2**index,
        )
        for index, depth in enumerate(depths)
    )


def _halve(stage: Stage) -> tuple[Operator, ...]:
    """Norm over the stage before, whose positions are four for each of this one's; convolution of stride 2."""
    return (
        Norm(name="halve_norm", inputs=("x",), kind="layer", width=stage.before, groups=4, bias=True),
        Conv2d(
            name="halve",
            inputs=("halve_norm",),
            in_channels=stage.before,
            out_channels=stage.channels,
            kernel_size=2,
            stride=2,
            downsample=stage.downsample,
            bias=True,
        ),
    )


def _block(config: Config, stage: Stage, source: str) -> tuple[Operator, ...]:
    """Depth-wise convolution, norm, two linears; a response norm inside (V2) or a learned scale behind."""
    channels = stage.channels
    convolution = Conv2d(
        name="depthwise",
        inputs=(source,),
        in_channels=channels,
        out_channels=channels,
        kernel_size=KERNEL,
        downsample=stage.downsample,
        groups=channels,
        bias=True,
    )
    shape = MlpShape(width=EXPANSION * channels, gated=False, function=config.text("hidden_act"), bias=True)
    up, act, down = mlp_branch(shape, channels, "mlp_norm").operators
    found: list[Operator] = [convolution, _norm("mlp_norm", "depthwise", channels), up, act]
    output = "down"
    if config.family == "convnextv2":
        found.append(Scale(name="response_norm", inputs=("act",), width=shape.width, weights=2))
        found.append(down.model_copy(update={"inputs": ("response_norm",)}))
    else:
        found.append(down)
        if config.number("layer_scale_init_value", low=-1.0) > 0:
            output = "layer_scale"
            found.append(Scale(name=output, inputs=("down",), width=channels, weights=1))
    found.append(Residual(name="residual", inputs=(source, output), width=channels))
    return tuple(found)


def _norm(name: str, source: str, channels: int) -> Norm:
    return Norm(name=name, inputs=(source,), kind="layer", width=channels, bias=True)


read_convnext = reader("convnext")
read_convnextv2 = reader("convnextv2")
