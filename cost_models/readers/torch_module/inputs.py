"""Example inputs for a model of the library: token ids of some length, or an image, or a stretch of audio."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from torch import nn

Inputs = dict[str, Any]

DEFAULT_IMAGE: Final = 224
DETECTION_IMAGE: Final = 640
AUDIO_FRAMES: Final = 3000
"""Thirty seconds of log-mel frames, what speech encoders are built for."""


@dataclass(frozen=True, slots=True)
class ImageSize:
    """Side of the input in pixels, and whether the config states it."""

    side: int
    stated: bool


def counts_tokens(model: nn.Module) -> bool:
    """Whether a sequence of token ids, whose length is free, runs through the model."""
    names = _parameters(model)
    return "decoder_input_ids" in names or ("input_ids" in names and _table(model) is not None)


def counts_images(model: nn.Module) -> bool:
    """Whether a batch of the model is images alone."""
    return "pixel_values" in _parameters(model) and not counts_tokens(model)


def image_size(config: Any) -> ImageSize:
    """The config's image size (a nested vision config's), or the usual one for its task."""
    for holder in (config, getattr(config, "vision_config", None), getattr(config, "backbone_config", None)):
        size = getattr(holder, "image_size", None)
        if isinstance(size, list | tuple) and size and all(isinstance(each, int) for each in size):
            size = max(size)
        if isinstance(size, int) and size > 0:
            return ImageSize(size, stated=True)
    detects = "Detection" in str(getattr(config, "architectures", None))
    return ImageSize(DETECTION_IMAGE if detects else DEFAULT_IMAGE, stated=False)


def candidates(
    model: nn.Module, config: Any, length: int, batch: int, side: int, dtype: Any
) -> Iterator[Inputs]:
    """Inputs that models of the library take, the simplest first: text alone where that is possible."""
    import torch

    def ids() -> Any:
        return torch.zeros((batch, length), dtype=torch.long, device="meta")

    names = _parameters(model)
    text: Inputs = {"use_cache": False} if "use_cache" in names else {}
    if "decoder_input_ids" in names:
        text["decoder_input_ids"] = ids()
    if "input_ids" in names and counts_tokens(model):
        text["input_ids"] = ids()
        yield text
        yield {**text, "attention_mask": torch.ones((batch, length), dtype=torch.long, device="meta")}
    for name, shape in _fixed_shapes(names, config, side):
        yield {**text, name: torch.zeros((batch, *shape), dtype=dtype, device="meta")}


def _fixed_shapes(names: set[str], config: Any, side: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Images or audio of the size the model is built for; every shape that models of the library take."""
    if "pixel_values" in names or "hidden_states" in names:
        channels = _first(config, ("num_channels", "in_channels", "in_chans"), 3)
        patch = _first(config, ("patch_size",), 16)
        yield "pixel_values", (channels, side, side)
        yield (
            "pixel_values",
            (_first(config, ("num_patches",), 0) or (side // patch) ** 2, channels * patch * patch),
        )
        yield "pixel_values", (_first(config, ("num_frames",), 16), channels, side, side)
    if "input_features" in names:
        bins = _first(config, ("num_mel_bins", "feature_size", "input_feat_per_channel"), 80)
        frames = 2 * _first(config, ("max_source_positions",), AUDIO_FRAMES // 2)
        yield "input_features", (bins, frames)
        yield "input_features", (frames, bins)
        yield "input_features", (frames, _first(config, ("feature_projection_input_dim",), 160))
    if "input_values" in names:
        yield "input_values", (160_000,)
        yield "input_values", (1024, 128)


def token_limit(config: Any, default: int) -> int:
    """Positions that a sequence may have, at most `default`."""
    limit = default
    parts = [getattr(config, key, None) for key in ("text_config", "encoder", "decoder")]
    for holder in (config, *parts):
        for key in ("max_position_embeddings", "n_positions", "n_ctx", "max_target_positions", "max_seq_len"):
            value = getattr(holder, key, None)
            if isinstance(value, int) and value > 0:
                limit = min(limit, value)
    return limit


def _table(model: nn.Module) -> Any:
    get = getattr(model, "get_input_embeddings", None)
    try:
        return get() if get else None
    except (NotImplementedError, AttributeError):
        return None


def _parameters(model: nn.Module) -> set[str]:
    return set(inspect.signature(model.forward).parameters)


def _first(config: Any, keys: tuple[str, ...], default: int) -> int:
    """The first of these keys that holds a number, in the config or the parts of it."""
    for holder in (config, getattr(config, "vision_config", None), getattr(config, "audio_config", None)):
        for key in keys:
            value = getattr(holder, key, None)
            if isinstance(value, list | tuple) and value:
                value = value[0]
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return default
