"""Swin (Liu et al. 2021) and Swin V2: stages of windowed attention; a quarter of the patches from each to the next."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cost_models.operators import Norm, PositionTable
from cost_models.operators.base import Operator
from cost_models.readers.blocks.attention import AttentionShape, attention_branch
from cost_models.readers.blocks.feed_forward import MlpShape, feed_forward_sublayer
from cost_models.readers.blocks.layers import layer_kind
from cost_models.readers.blocks.stream import Branch, Stream, chain, replicated, sublayer
from cost_models.readers.huggingface.config import MAX_LAYERS, Config, Default, options, sizes
from cost_models.readers.huggingface.encoder import check_heads
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
from cost_models.specs.model import Layer, LayerKind, ModelSpec, Stack

DEFAULTS: Mapping[str, Default] = {
    **sizes(
        image_size=224,
        patch_size=4,
        num_channels=3,
        embed_dim=96,
        depths=(2, 2, 6, 2),
        num_heads=(3, 6, 12, 24),
        window_size=7,
        mlp_ratio=4.0,
        qkv_bias=True,
        use_absolute_embeddings=False,
        num_labels=2,
    ),
    **options(
        hidden_act="gelu", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, layer_norm_eps=1e-5
    ),
}
"""SwinConfig and Swinv2Config of transformers 5.24."""

BIAS_NET_WIDTH = 512
"""Hidden width of the network that gives Swin V2's position bias (Liu et al. 2022, section 3.3)."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: its number from 1, width, heads and blocks."""

    number: int
    width: int
    heads: int
    depth: int

    @property
    def name(self) -> str:
        """Name of the stage's kind and stack."""
        return f"stage{self.number}"


def reader(family: str) -> Callable[[Mapping[str, object], str], ModelSpec]:
    """The reader of swin or swinv2, with its classifier."""
    return lambda raw, name: _read(Config(raw, DEFAULTS, family), name, raw)


def _read(config: Config, name: str, raw: Mapping[str, object]) -> ModelSpec:
    stages = _stages(config)
    cells, patch = grid(config), side(config, "patch_size")
    labels, last = class_labels(config, raw), stages[-1]
    kinds = {"embedding": layer_kind("embedding", _embedding(config, stages[0], cells), stages[0].width)}
    layers: list[Layer] = []
    for stage in stages:
        kinds[stage.name] = layer_kind(stage.name, _block(config, stage), stage.width)
        layers.append(Layer(kind=stage.name, stack=stage.name, count=stage.depth))
        if stage is not last:
            merge = f"{stage.name}_merge"
            kinds[merge] = _merge(config, merge, stage.width)
            layers.append(Layer(kind=merge, stack=f"stage{stage.number + 1}"))
    kinds["head"] = layer_kind("head", _head(last.width, labels), last.width, cut_after=False)
    first, head = ends(stages[0].name, last.name)
    parts = Classifier(
        name=name,
        hidden=last.width,
        heads=last.heads,
        layers=(first, *layers, head),
        kinds=kinds,
        stacks=tuple(
            Stack(name=stage.name, length="image_size", patch_size=patch * 2 ** (stage.number - 1))
            for stage in stages
        ),
        semantics={
            "norm": "layer",
            "norm_eps": config.number("layer_norm_eps"),
            "activation": config.text("hidden_act"),
            "position": "relative",
            "window": config.integer("window_size"),
            "causal": False,
            "classes": labels,
        },
    )
    return classifier_model(config, parts)


def _stages(config: Config) -> tuple[Stage, ...]:
    depths, heads = config.integers("depths"), config.integers("num_heads")
    if len(depths) != len(heads) or not depths:
        raise config.contradiction(
            "num_heads",
            f"num_heads has {len(heads)} stages but depths has {len(depths)}; make the two agree",
        )
    if sum(depths) > MAX_LAYERS:
        raise config.contradiction(
            "depths", f"depths add up to {sum(depths)} blocks; use at most {MAX_LAYERS}"
        )
    cells = grid(config)
    if cells < 2 ** (len(depths) - 1):
        raise config.contradiction(
            "depths",
            f"depths has {len(depths)} stages, more than {cells} patches a side can be halved; use fewer",
        )
    first = config.integer("embed_dim")
    found = tuple(
        Stage(number=index + 1, width=first * 2**index, heads=heads[index], depth=depth)
        for index, depth in enumerate(depths)
    )
    for stage in found:
        check_heads(config, "embed_dim", stage.width, stage.heads, "num_heads")
    return found


def _embedding(config: Config, stage: Stage, cells: int) -> tuple[Operator, ...]:
    """Patches, their norm, and learned positions where asked (Swin V2 has one more)."""
    norm = Norm(name="embedding_norm", inputs=("patches",), kind="layer", width=stage.width, bias=True)
    found: list[Operator] = [patch_embedding(config, stage.width), norm]
    if config.flag("use_absolute_embeddings"):
        rows = cells**2 + (config.family == "swinv2")
        found.append(
            PositionTable(
                name="positions", inputs=("embedding_norm",), elements=rows * stage.width, width=stage.width
            )
        )
    return tuple(found)


def _block(config: Config, stage: Stage) -> tuple[Operator, ...]:
    """Attention inside windows and a feed-forward; norms before (Swin) or after the branch (V2)."""
    second = config.family == "swinv2"
    stream = Stream(
        stage.width,
        norm="layer",
        placement="inner" if second else "pre",
        dropout=config.number("hidden_dropout_prob") > 0,
    )
    window = config.integer("window_size", high=1024)
    attention = AttentionShape(
        heads=stage.heads,
        head_dim=stage.width // stage.heads,
        qkv_bias=config.flag("qkv_bias"),
        key_bias=not second,
        out_bias=True,
        rope=False,
        causal=False,
        chunk=window**2,
        dropout=config.number("attention_probs_dropout_prob") > 0,
        relative_buckets=0 if second else (2 * window - 1) ** 2,
    )
    mlp = MlpShape(
        width=config.multiple("mlp_ratio", stage.width),
        gated=False,
        function=config.text("hidden_act"),
        bias=True,
    )

    def attend(source: str) -> Branch:
        branch = attention_branch(attention, stage.width, source)
        return Branch((_bias_net(stage.heads), *branch.operators), branch.outputs) if second else branch

    return chain(lambda source: sublayer(stream, "attn", source, attend), feed_forward_sublayer(stream, mlp))


def _bias_net(heads: int) -> PositionTable:
    """Swin V2's position bias, a small network over offsets, and the logit scale of each head."""
    elements = 2 * BIAS_NET_WIDTH + BIAS_NET_WIDTH + BIAS_NET_WIDTH * heads + heads
    return PositionTable(name="position_bias", elements=elements)


def _merge(config: Config, name: str, width: int) -> LayerKind:
    """Four neighbouring patches become one of twice the width; its rows are the next stage's."""
    after = config.family == "swinv2"
    linear = replicated("reduction", "x" if after else "merge_norm", 4 * width, 2 * width)
    norm = Norm(
        name="merge_norm",
        inputs=("reduction",) if after else ("x",),
        kind="layer",
        width=2 * width if after else 4 * width,
        bias=True,
    )
    return layer_kind(name, (linear, norm) if after else (norm, linear), 2 * width)


def _head(width: int, labels: int) -> tuple[Operator, ...]:
    """Final norm, mean over patches, classifier."""
    return (
        Norm(name="final_norm", inputs=("x",), kind="layer", width=width, bias=True),
        *classifier("final_norm", width, labels),
    )


read_swin = reader("swin")
read_swinv2 = reader("swinv2")
