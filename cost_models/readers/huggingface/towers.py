"""The towers of the composite families: CLIP (LLaVA), SigLIP (Gemma 3), Llama 4, Qwen3-VL and Qwen3.5."""

from collections.abc import Callable, Mapping
from math import isqrt

from cost_models.operators import Norm
from cost_models.operators.base import Operator
from cost_models.readers.blocks.feed_forward import MlpShape, activation
from cost_models.readers.blocks.stream import replicated
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.tower import Tower, Widths, patch_features, projector, read_frame
from cost_models.readers.huggingface.vision import grid, side

TowerReader = Callable[[Config, Config, int], Tower]
"""(config of the tower, config of the whole, width of the text model) -> tower."""

_SQUARE: Mapping[str, Default] = {
    **sizes(
        hidden_size=768,
        intermediate_size=3072,
        num_hidden_layers=12,
        num_attention_heads=12,
        num_channels=3,
        image_size=224,
    ),
    **options(attention_dropout=0.0),
}
CLIP: Mapping[str, Default] = {**_SQUARE, **sizes(patch_size=32), **options(hidden_act="quick_gelu")}
"""CLIPVisionConfig of transformers 5.24."""
SIGLIP: Mapping[str, Default] = {
    **_SQUARE,
    **sizes(patch_size=16, vision_use_head=True),
    **options(hidden_act="gelu_pytorch_tanh"),
}
"""SiglipVisionConfig of transformers 5.24."""
LLAMA4: Mapping[str, Default] = {
    **_SQUARE,
    **sizes(
        intermediate_size=5632,
        num_hidden_layers=34,
        num_attention_heads=16,
        image_size=448,
        patch_size=14,
        vision_output_dim=7680,
        projector_input_dim=4096,
        projector_output_dim=4096,
    ),
    **options(hidden_act="gelu", pixel_shuffle_ratio=0.5),
}
"""Llama4VisionConfig of transformers 5.24: not the sizes of any published Llama 4."""
QWEN: Mapping[str, Default] = {
    **sizes(
        depth=27,
        hidden_size=1152,
        intermediate_size=4304,
        num_heads=16,
        in_channels=3,
        patch_size=16,
        spatial_merge_size=2,
        temporal_patch_size=2,
        out_hidden_size=3584,
        num_position_embeddings=2304,
        deepstack_visual_indexes=(8, 16, 24),
    ),
    **options(hidden_act="gelu_pytorch_tanh", attention_dropout=0.0),
}
"""Qwen3VLMoeVisionConfig and Qwen3_5MoeVisionConfig of transformers 5.24."""
_QWEN_NAMES: Mapping[str, str] = {"num_hidden_layers": "depth", "num_attention_heads": "num_heads"}


def clip_tower(config: Config, whole: Config, text_width: int) -> Tower:
    """CLIP and two matrices with biases. Its last layers run although an inner layer's output is handed on."""
    frame, cells = read_frame(config), grid(config)
    if isinstance(whole.raw("vision_feature_layer"), list | tuple):
        raise whole.contradiction(
            "vision_feature_layer", "vision_feature_layer is a list; only one layer is read, give one number"
        )
    strategy = whole.text("vision_feature_select_strategy", ("default", "full"))
    widths = Widths(frame.hidden, text_width, text_width)
    return Tower(
        frame=frame,
        patch_features=patch_features(config, side(config, "patch_size")),
        patch_bias=False,
        vectors=1 + cells**2 + 1,
        positions=cells**2 + 1,
        tokens=cells**2 + (strategy == "full"),
        connector=projector(
            widths, whole.text("projector_hidden_act"), whole.flag("multimodal_projector_bias")
        ),
        norms=("pre_norm",),
        idle=2 * frame.hidden,  # the norm of the pooled class token
    )


def siglip_tower(config: Config, whole: Config, text_width: int) -> Tower:
    """SigLIP; patches averaged to a fixed number of tokens, a norm, one matrix without bias."""
    frame, cells = read_frame(config), grid(config)
    tokens = whole.integer("mm_tokens_per_image")
    if isqrt(tokens) ** 2 != tokens:
        raise whole.contradiction(
            "mm_tokens_per_image",
            f"mm_tokens_per_image {tokens} is not a square; use the square of a whole number",
        )
    return Tower(
        frame=frame,
        patch_features=patch_features(config, side(config, "patch_size")),
        patch_bias=True,
        vectors=cells**2,
        positions=cells**2,
        tokens=tokens,
        connector=(
            Norm(name="soft_norm", inputs=("x",), width=frame.hidden),
            replicated("projection", "soft_norm", frame.hidden, text_width),
        ),
        norms=("post_norm",),
        idle=_pooling_head(frame.hidden, frame.mlp.width) if config.flag("vision_use_head") else 0,
    )


def _pooling_head(hidden: int, width: int) -> int:
    """Probe, four attention matrices, a LayerNorm, two matrices; biases everywhere."""
    attention = 4 * (hidden**2 + hidden)
    return hidden + attention + 2 * hidden + 2 * hidden * width + width + hidden


def llama4_tower(config: Config, whole: Config, text_width: int) -> Tower:
    """Rotary layers; neighbouring patches side by side, two matrices (the adapter), one more to the text width."""
    frame, cells = read_frame(config), grid(config)
    ratio = config.number("pixel_shuffle_ratio")
    read, out = config.integer("projector_input_dim"), config.integer("projector_output_dim")
    if read != out:
        raise config.contradiction(
            "projector_output_dim",
            f"projector_output_dim {out} is not projector_input_dim {read}, which the adapter multiplies; "
            "make the two equal",
        )
    tokens = int(cells * ratio) ** 2
    if not 0 < tokens <= cells**2:
        raise config.contradiction(
            "pixel_shuffle_ratio",
            f"pixel_shuffle_ratio {ratio:g} makes {tokens} tokens of {cells**2} patches; use a ratio of at most 1",
        )
    shape = MlpShape(width=out, gated=False, function="gelu")
    connector: tuple[Operator, ...] = (
        *projector(Widths(frame.mlp.width, read, out), "gelu", bias=False),
        activation("adapter_act", "down", shape),
        replicated("projection", "adapter_act", config.integer("vision_output_dim"), text_width),
    )
    return Tower(
        frame=frame,
        patch_features=patch_features(config, side(config, "patch_size")),
        patch_bias=False,
        vectors=1 + cells**2 + 1,
        positions=cells**2 + 1,
        tokens=tokens,
        connector=connector,
        norms=("pre_norm", "post_norm"),
        rotary=True,
    )


def qwen_tower(config: Config, whole: Config, text_width: int) -> Tower:
    """Rotary layers at any resolution; one image fills the table of positions; neighbours merged by two matrices."""
    frame, patch = read_frame(config, _QWEN_NAMES), side(config, "patch_size")
    merge, out = config.integer("spatial_merge_size"), config.integer("out_hidden_size")
    patches = config.integer("num_position_embeddings")
    if patches % merge**2:
        raise config.contradiction(
            "num_position_embeddings",
            f"num_position_embeddings {patches} is not a multiple of spatial_merge_size squared, {merge**2}; "
            "make it one",
        )
    if out != text_width:
        raise config.contradiction(
            "out_hidden_size",
            f"out_hidden_size {out} is not the text model's hidden_size {text_width}; make it so",
        )
    frames = config.integer("temporal_patch_size", high=1000)
    merged = frame.hidden * merge**2
    widths = Widths(merged, merged, out)
    mergers = _inner_layers(config, frame.layers) if config.family.startswith("qwen3_vl") else 0
    return Tower(
        frame=frame,
        patch_features=frames * patch_features(config, patch, "in_channels"),
        patch_bias=True,
        vectors=patches,
        positions=patches,
        tokens=patches // merge**2,
        connector=_merger(
            widths,
            Norm(name="norm", inputs=("x",), kind="layer", width=frame.hidden, groups=merge**2, bias=True),
        ),
        rotary=True,
        merger=_merger(widths, Norm(name="norm", inputs=("x",), kind="layer", width=merged, bias=True)),
        mergers=mergers,
    )


def _merger(widths: Widths, norm: Norm) -> tuple[Operator, ...]:
    return (norm, *projector(widths, "gelu", bias=True, source="norm"))


def _inner_layers(config: Config, layers: int) -> int:
    """Layers whose output is handed on as well (DeepStack)."""
    listed = config.integers("deepstack_visual_indexes", low=0)
    for index in listed:
        if index >= layers:
            raise config.contradiction(
                "deepstack_visual_indexes",
                f"deepstack_visual_indexes names layer {index} of a tower of {layers}; use at most {layers - 1}",
            )
    if len(set(listed)) != len(listed):
        raise config.contradiction(
            "deepstack_visual_indexes", "deepstack_visual_indexes names a layer twice; name each once"
        )
    return len(listed)
