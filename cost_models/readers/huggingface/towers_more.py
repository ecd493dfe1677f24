"""More towers of composite families: Qwen2-VL, Qwen2.5-VL and Gemma 4."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, NoReturn

from cost_models.operators import Norm
from cost_models.operators.base import Operator
from cost_models.readers.blocks.attention import AttentionShape, attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, feed_forward_sublayer
from cost_models.readers.blocks.stream import Stream, chain, replicated
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.encoder import check_heads
from cost_models.readers.huggingface.tower import Frame, Tower, Widths, patch_features, projector
from cost_models.readers.huggingface.vision import grid, side

_QWEN: Mapping[str, Default] = {
    **sizes(
        depth=32,
        hidden_size=3584,
        num_heads=16,
        in_channels=3,
        patch_size=14,
        spatial_merge_size=2,
        temporal_patch_size=2,
    ),
    **options(attention_dropout=0.0),
}
QWEN2: Mapping[str, Default] = {
    **_QWEN,
    **sizes(embed_dim=1280, mlp_ratio=4),
    **options(hidden_act="quick_gelu"),
}
"""Qwen2VLVisionConfig of transformers 5.24."""
QWEN2_5: Mapping[str, Default] = {
    **_QWEN,
    **sizes(intermediate_size=3420, out_hidden_size=3584),
    **options(hidden_act="silu", window_size=112, fullatt_block_indexes=(7, 15, 23, 31)),
}
"""Qwen2_5_VLVisionConfig of transformers 5.24."""
GEMMA4: Mapping[str, Default] = {
    **sizes(
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=16,
        num_attention_heads=12,
        num_key_value_heads=12,
        head_dim=64,
        patch_size=16,
        position_embedding_size=10240,
        attention_bias=False,
    ),
    **options(hidden_activation="gelu_pytorch_tanh", attention_dropout=0.0, pooling_kernel_size=3),
}
"""Gemma4VisionConfig of transformers 5.24."""

PIXTRAL: Mapping[str, Default] = {
    **sizes(
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=24,
        num_attention_heads=16,
        num_channels=3,
        image_size=1024,
        patch_size=16,
    ),
    **options(hidden_act="gelu", attention_dropout=0.0),
}
"""PixtralVisionConfig of transformers 5.24."""

QWEN_PATCHES = 2304
"""Patches of the one image that every sequence is taken to hold: 48 x 48, as many as Qwen3-VL's table has rows."""


def qwen2_tower(config: Config, whole: Config, text_width: int) -> Tower:
    """Rotary layers behind LayerNorms; neighbours merged by two matrices."""
    hidden = config.integer("embed_dim")
    mlp = MlpShape(
        width=config.integer("mlp_ratio", high=1000) * hidden,
        gated=False,
        function=config.text("hidden_act"),
        bias=True,
    )
    frame = _frame(config, "embed_dim", hidden, mlp)
    return _qwen(config, frame, config.integer("hidden_size"), text_width)


def qwen2_5_tower(config: Config, whole: Config, text_width: int) -> Tower:
    """RMSNorms, gated feed-forwards with biases, attention inside windows in all layers but a few."""
    hidden = config.integer("hidden_size")
    mlp = MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_act"), bias=True)
    frame = _frame(config, "hidden_size", hidden, mlp)
    patch = side(config, "patch_size")
    window = max(1, config.integer("window_size") // patch // config.integer("spatial_merge_size"))
    positions = (window * config.integer("spatial_merge_size")) ** 2
    full = config.integers("fullatt_block_indexes", low=0)
    order = tuple("vision" if i in full else "vision_window" for i in range(frame.layers))
    blocks = {
        "vision": _rms_block(frame, 0),
        "vision_window": _rms_block(frame, positions),
    }
    tower = _qwen(config, frame, config.integer("out_hidden_size"), text_width, norm="rms")
    return replace(tower, blocks={kind: blocks[kind] for kind in dict.fromkeys(order)}, order=order)


def _frame(config: Config, key: str, hidden: int, mlp: MlpShape) -> Frame:
    heads = config.count("num_heads")
    check_heads(config, key, hidden, heads, "num_heads")
    dropout = config.number("attention_dropout") > 0
    return Frame(hidden=hidden, heads=heads, layers=config.count("depth"), mlp=mlp, dropout=dropout)


def _rms_block(frame: Frame, window: int) -> tuple[Operator, ...]:
    """A layer behind RMSNorms, inside windows of so many positions where above 0."""
    attention = AttentionShape(
        heads=frame.heads,
        head_dim=frame.hidden // frame.heads,
        qkv_bias=True,
        out_bias=True,
        causal=False,
        chunk=window,
        dropout=frame.dropout,
    )
    stream = Stream(frame.hidden)
    return chain(attention_sublayer(stream, attention), feed_forward_sublayer(stream, frame.mlp))


def _qwen(
    config: Config, frame: Frame, out: int, text_width: int, norm: Literal["rms", "layer"] = "layer"
) -> Tower:
    if out != text_width:
        raise config.contradiction(
            "hidden_size" if norm == "layer" else "out_hidden_size",
            f"the tower hands on {out} features, not the {text_width} of the text model; make the two agree",
        )
    merge = config.integer("spatial_merge_size", high=16)
    frames = config.integer("temporal_patch_size", high=1000)
    merged = frame.hidden * merge**2
    tokens = QWEN_PATCHES // merge**2
    first = Norm(
        name="norm", inputs=("x",), kind=norm, width=frame.hidden, groups=merge**2, bias=norm == "layer"
    )
    return Tower(
        frame=frame,
        patch_features=frames * patch_features(config, side(config, "patch_size"), "in_channels"),
        patch_bias=False,
        vectors=0,
        positions=tokens * merge**2,
        tokens=max(tokens, 1),
        connector=(first, *projector(Widths(merged, merged, out), "gelu", bias=True, source="norm")),
        rotary=True,
    )


def gemma4_tower(config: Config, whole: Config, text_width: int) -> Tower:
    """Four RMSNorms a layer, q/k norms, gated feed-forwards without biases; squares of positions averaged."""
    hidden, heads = config.integer("hidden_size"), config.count("num_attention_heads")
    keys, dim = config.count("num_key_value_heads"), config.integer("head_dim")
    if heads % keys:
        raise config.contradiction(
            "num_key_value_heads", f"num_key_value_heads {keys} does not divide {heads} heads; use a divisor"
        )
    if config.raw("attention_bias"):
        raise config.contradiction(
            "attention_bias", "attention_bias is not false, which the tower's class does not build"
        )
    mlp = MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_activation"))
    dropout = config.number("attention_dropout") > 0
    frame = Frame(hidden, heads, config.count("num_hidden_layers"), mlp, dropout)
    attention = AttentionShape(
        heads=heads, kv_heads=keys, head_dim=dim, qk_norm=True, causal=False, dropout=frame.dropout
    )
    stream = Stream(hidden, placement="sandwich")
    block = chain(attention_sublayer(stream, attention), feed_forward_sublayer(stream, mlp))
    tokens = whole.integer("vision_soft_tokens_per_image", low=1, high=100_000)
    return Tower(
        frame=frame,
        patch_features=3 * side(config, "patch_size") ** 2,
        patch_bias=False,
        vectors=2 * config.integer("position_embedding_size"),
        positions=tokens * config.integer("pooling_kernel_size", high=100) ** 2,
        tokens=tokens,
        connector=(
            Norm(name="soft_norm", inputs=("x",), width=hidden, weight=False),
            replicated("projection", "soft_norm", hidden, text_width),
        ),
        rotary=True,
        embeds=True,
        blocks={"vision": block},
        order=("vision",) * frame.layers,
    )


def pixtral_tower(config: Config, whole: Config, text_width: int) -> Tower:
    """Rotary layers without biases behind RMSNorms; a norm, neighbours merged by one matrix, two more."""
    hidden, heads = config.integer("hidden_size"), config.count("num_attention_heads")
    check_heads(config, "hidden_size", hidden, heads)
    mlp = MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_act"))
    dropout = config.number("attention_dropout") > 0
    frame = Frame(hidden, heads, config.count("num_hidden_layers"), mlp, dropout)
    attention = AttentionShape(heads=heads, head_dim=hidden // heads, causal=False, dropout=dropout)
    stream, merge = Stream(hidden), whole.integer("spatial_merge_size", high=64)
    block = chain(attention_sublayer(stream, attention), feed_forward_sublayer(stream, mlp))
    if not isinstance(whole.raw("vision_feature_layer"), int):
        raise whole.contradiction(
            "vision_feature_layer", "vision_feature_layer is no whole number; give one layer"
        )
    cells = grid(config)
    bias, function = whole.flag("multimodal_projector_bias"), whole.text("projector_hidden_act")
    return Tower(
        frame=frame,
        patch_features=patch_features(config, side(config, "patch_size")),
        patch_bias=False,
        vectors=0,
        positions=cells**2,
        tokens=max(1, (cells // merge) ** 2),
        connector=(
            Norm(name="soft_norm", inputs=("x",), width=hidden),
            replicated("merge", "soft_norm", hidden * merge**2, hidden),
            *projector(Widths(hidden, text_width, text_width), function, bias, source="merge"),
        ),
        norms=("pre_norm",),
        norm="rms",
        rotary=True,
        blocks={"vision": block},
        order=("vision",) * frame.layers,
    )


def no_tower(config: Config, whole: Config, text_width: int) -> NoReturn:
    """A family whose towers are not read."""
    raise whole.contradiction(
        "vision_config",
        f"the vision_config of {whole.family} is not read; leave it out for the text model alone",
    )
