"""ViT, ViT-MSN, DeiT, BEiT and DINOv2: patches and a class token through norm-first bidirectional layers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cost_models.operators import PositionTable
from cost_models.operators.base import Operator
from cost_models.readers.blocks.attention import AttentionShape, attention_branch
from cost_models.readers.blocks.feed_forward import MlpShape, mlp_branch
from cost_models.readers.blocks.layers import layer_kind, runs
from cost_models.readers.blocks.stream import Stream, chain, sublayer
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.encoder import check_heads
from cost_models.readers.huggingface.vision import (
    Classifier,
    class_labels,
    classifier,
    classifier_model,
    ends,
    grid,
    patch_embedding,
    scaled,
    side,
)
from cost_models.specs.model import ModelSpec, Stack

_VIT: Mapping[str, Default] = {
    **sizes(
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=3072,
        image_size=224,
        patch_size=16,
        num_channels=3,
        qkv_bias=True,
        num_labels=2,
    ),
    **options(
        hidden_act="gelu", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, layer_norm_eps=1e-12
    ),
}
_DINO: Mapping[str, Default] = {
    **_VIT,
    **sizes(mlp_ratio=4, patch_size=14, use_mask_token=True, use_swiglu_ffn=False),
    **options(layer_norm_eps=1e-6, layerscale_value=1.0),
}
DEFAULTS: Mapping[str, Mapping[str, Default]] = {
    "vit": _VIT,
    "vit_msn": {**_VIT, **options(layer_norm_eps=1e-6)},
    "deit": _VIT,
    "beit": {
        **_VIT,
        **sizes(
            use_mask_token=False,
            use_absolute_position_embeddings=False,
            use_relative_position_bias=False,
            use_shared_relative_position_bias=False,
            layer_scale_init_value=0.1,
        ),
        **options(use_mean_pooling=True),
    },
    "dinov2": _DINO,
    "dinov2_with_registers": {**_DINO, **sizes(patch_size=16, num_register_tokens=4)},
}
"""ViTConfig, ViTMSNConfig, DeiTConfig, BeitConfig and Dinov2Config of transformers 5.24."""

BEIT_CLASS_RELATIONS = 3
"""Rows of BEiT's relative table beside those between patches: class to patch, patch to class, class to itself."""
SWIGLU_MULTIPLE = 8
"""DINOv2's gated feed-forward is two thirds as wide, rounded up to a multiple of this."""


@dataclass(frozen=True, slots=True)
class Tower:
    """Sizes and features of one family's model."""

    hidden: int
    heads: int
    layers: int
    grid: int
    tokens: int
    """Tokens in front of the patches."""
    vectors: int
    """Learned vectors of the embedding layer: those tokens, a mask token, positions."""
    mlp: MlpShape
    layer_scale: bool
    relative: int
    """Rows of a relative position table in every layer."""
    shared_relative: int
    """Rows of one such table for all layers."""


def reader(family: str) -> Callable[[Mapping[str, object], str], ModelSpec]:
    """The reader of one of the families, with its classifier."""
    return lambda raw, name: _read(Config(raw, DEFAULTS[family], family), name, raw)


def _read(config: Config, name: str, raw: Mapping[str, object]) -> ModelSpec:
    tower = _tower(config)
    stream = Stream(tower.hidden, norm="layer", dropout=config.number("hidden_dropout_prob") > 0)
    labels = class_labels(config, raw)
    features = 2 * tower.hidden if config.family.startswith("dinov2") else tower.hidden
    built = {
        "embedding": _embedding(config, tower),
        "dense": _block(config, stream, tower),
        "head": (stream.normalise("final_norm", "x"), *classifier("final_norm", features, labels)),
    }
    first, last = ends("vision", "vision")
    parts = Classifier(
        name=name,
        hidden=tower.hidden,
        heads=tower.heads,
        layers=(first, *runs(("dense",) * tower.layers, stack="vision"), last),
        kinds={
            kind: layer_kind(kind, operators, tower.hidden, cut_after=kind != "head")
            for kind, operators in built.items()
        },
        stacks=(
            Stack(
                name="vision",
                length="image_size",
                patch_size=side(config, "patch_size"),
                extra_positions=tower.tokens,
            ),
        ),
        semantics={
            "norm": "layer",
            "norm_eps": config.number("layer_norm_eps"),
            "activation": tower.mlp.function,
            "position": "learned",
            "causal": False,
            "classes": labels,
        },
    )
    return classifier_model(config, parts)


def _tower(config: Config) -> Tower:
    family = config.family
    hidden, heads = config.integer("hidden_size"), config.count("num_attention_heads")
    check_heads(config, "hidden_size", hidden, heads)
    cells = grid(config)
    registers = config.integer("num_register_tokens", low=0) if family == "dinov2_with_registers" else 0
    tokens = 1 + registers + (family == "deit")
    mask = family == "dinov2_with_registers" or (
        family in ("beit", "dinov2") and config.flag("use_mask_token")
    )
    absolute = family != "beit" or config.flag("use_absolute_position_embeddings")
    positions = cells**2 + tokens - registers if absolute else 0
    rows = (2 * cells - 1) ** 2 + BEIT_CLASS_RELATIONS
    beit = family == "beit"
    return Tower(
        hidden=hidden,
        heads=heads,
        layers=config.count("num_hidden_layers"),
        grid=cells,
        tokens=tokens,
        vectors=tokens + mask + positions,
        mlp=_mlp(config, hidden),
        layer_scale=family.startswith("dinov2")
        or (beit and config.number("layer_scale_init_value", low=-1.0) > 0),
        relative=rows if beit and config.flag("use_relative_position_bias") else 0,
        shared_relative=rows if beit and config.flag("use_shared_relative_position_bias") else 0,
    )


def _mlp(config: Config, hidden: int) -> MlpShape:
    function = config.text("hidden_act")
    if not config.family.startswith("dinov2"):
        return MlpShape(width=config.integer("intermediate_size"), gated=False, function=function, bias=True)
    width = config.multiple("mlp_ratio", hidden)
    if not config.flag("use_swiglu_ffn"):
        return MlpShape(width=width, gated=False, function=function, bias=True)
    width = -(-int(width * 2 / 3) // SWIGLU_MULTIPLE) * SWIGLU_MULTIPLE
    return MlpShape(width=width, gated=True, function="silu", bias=True)


def _embedding(config: Config, tower: Tower) -> tuple[Operator, ...]:
    found: list[Operator] = [
        patch_embedding(config, tower.hidden),
        PositionTable(
            name="positions",
            inputs=("patches",),
            elements=tower.vectors * tower.hidden,
            width=tower.hidden,
        ),
    ]
    if tower.shared_relative:
        elements = tower.shared_relative * tower.heads
        found.append(PositionTable(name="relative_bias", inputs=("positions",), elements=elements))
    return tuple(found)


def _block(config: Config, stream: Stream, tower: Tower) -> tuple[Operator, ...]:
    beit = config.family == "beit"
    attention = AttentionShape(
        heads=tower.heads,
        head_dim=tower.hidden // tower.heads,
        qkv_bias=beit or config.flag("qkv_bias"),
        key_bias=not beit,
        out_bias=True,
        rope=False,
        causal=False,
        dropout=config.number("attention_probs_dropout_prob") > 0,
        relative_buckets=tower.relative,
    )
    hidden, present = tower.hidden, tower.layer_scale
    return chain(
        lambda source: sublayer(
            stream,
            "attn",
            source,
            lambda inside: scaled(attention_branch(attention, hidden, inside), "attn_scale", hidden, present),
        ),
        lambda source: sublayer(
            stream,
            "mlp",
            source,
            lambda inside: scaled(mlp_branch(tower.mlp, hidden, inside), "mlp_scale", hidden, present),
        ),
    )


read_vit = reader("vit")
read_vit_msn = reader("vit_msn")
read_deit = reader("deit")
read_beit = reader("beit")
read_dinov2 = reader("dinov2")
read_dinov2_with_registers = reader("dinov2_with_registers")
