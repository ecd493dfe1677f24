"""What image classifiers share: square sides, patches, scaled branches, the classifier and the model around them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cost_models.operators import ClassLoss, Conv2d, Linear, Scale
from cost_models.operators.base import Operator
from cost_models.operators.linear import Part
from cost_models.readers.blocks.stream import Branch
from cost_models.readers.huggingface.config import Config, Scalar
from cost_models.specs.model import Layer, LayerKind, ModelSpec, Role, Stack

MAX_SIDE = 65_536
"""Longest side of an image or patch in pixels."""


def side(config: Config, key: str) -> int:
    """A side in pixels: a whole number, or a pair of equal ones."""
    value = config.raw(key)
    if isinstance(value, list | tuple):
        sides = set(config.integers(key))
        if len(sides) != 1:
            raise config.contradiction(
                key, f"{key} is {' x '.join(map(str, value))[:60]}; only squares are read, give equal sides"
            )
        return sides.pop()
    return config.integer(key, high=MAX_SIDE)


def grid(config: Config) -> int:
    """Patches a side; an image holds at least one."""
    image, patch = side(config, "image_size"), side(config, "patch_size")
    if patch > image:
        raise config.contradiction(
            "patch_size", f"patch_size {patch} is more than image_size {image}; use at most {image}"
        )
    return image // patch


def class_labels(config: Config, raw: Mapping[str, object]) -> int:
    """Classes: num_labels, or the length of id2label."""
    names = raw.get("id2label")
    if not config.states("num_labels") and isinstance(names, Mapping):
        return len(names)
    return config.count("num_labels")


def classifier(source: str, width: int, labels: int) -> tuple[Operator, ...]:
    """A linear over one row of features a sample, and its loss."""
    return (
        Linear(
            name="classifier",
            inputs=(source,),
            in_features=width,
            parts=(Part(name="weight", features=labels),),
            split="replicated",
            bias=True,
            per_sample=True,
        ),
        ClassLoss(name="loss", inputs=("classifier",), classes=labels),
    )


def patch_embedding(config: Config, width: int) -> Conv2d:
    """A convolution whose stride is its size."""
    patch = side(config, "patch_size")
    return Conv2d(
        name="patches",
        inputs=("x",),
        in_channels=config.integer("num_channels", high=MAX_SIDE),
        out_channels=width,
        kernel_size=patch,
        stride=patch,
        downsample=patch,
        bias=True,
    )


def scaled(branch: Branch, name: str, width: int, present: bool = True) -> Branch:
    """A branch behind a learned scale by feature, where present."""
    if not present:
        return branch
    scale = Scale(name=name, inputs=branch.outputs, width=width, weights=1)
    return Branch((*branch.operators, scale), (name,))


@dataclass(frozen=True, slots=True)
class Classifier:
    """Layers, kinds and sizes of an image classifier."""

    name: str
    hidden: int
    heads: int
    layers: Sequence[Layer]
    kinds: Mapping[str, LayerKind]
    stacks: Sequence[Stack]
    semantics: Mapping[str, Scalar]


def classifier_model(config: Config, parts: Classifier) -> ModelSpec:
    """The model between its embedding and its head, whose layers are in place."""
    return ModelSpec(
        name=parts.name,
        family=config.family,
        layers=tuple(parts.layers),
        kinds=dict(parts.kinds),
        stacks=tuple(parts.stacks),
        hidden_size=parts.hidden,
        num_attention_heads=parts.heads,
        num_kv_heads=parts.heads,
        image_size=side(config, "image_size"),
        semantics=dict(parts.semantics),
        assumed=config.assumed,
        reader="huggingface",
    )


def ends(stack: str, last: str) -> tuple[Layer, Layer]:
    """Embedding in the first stack, head in the last."""
    return (
        Layer(kind="embedding", role=Role.EMBEDDING, stack=stack),
        Layer(kind="head", role=Role.HEAD, stack=last),
    )
