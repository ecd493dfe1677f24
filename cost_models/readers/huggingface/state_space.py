"""What families with Mamba mixers share: their shapes from a config's keys, and which mixer each layer has."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cost_models.readers.blocks.mamba import MambaShape, SelectiveShape
from cost_models.readers.huggingface.config import Config, Default, options, sizes

MIXERS: Mapping[str, str] = {
    "linear_attention": "mamba",
    "mamba": "mamba",
    "full_attention": "attention",
    "attention": "attention",
}
"""Values of layer_types and layers_block_type, under their newer and older names."""

HYBRID_DEFAULTS: Mapping[str, Default] = {
    **sizes(
        mamba_n_heads=128,
        mamba_n_groups=1,
        mamba_d_state=256,
        mamba_d_head="auto",
        mamba_d_conv=4,
        mamba_expand=2,
        mamba_conv_bias=True,
        mamba_proj_bias=False,
    ),
    **options(mamba_chunk_size=256),
}
"""Mamba 2 keys of Bamba, Granite hybrid and Falcon-H1 (transformers 5.24)."""

RANK_DIVISOR = 16
"""The step size comes from hidden / 16 features where the rank is automatic (Gu and Dao 2023, section 3.6)."""


@dataclass(frozen=True, slots=True)
class MambaKeys:
    """Names under which a family states the sizes of its Mamba 2 mixer."""

    heads: str = "mamba_n_heads"
    head_dim: str = "mamba_d_head"
    groups: str = "mamba_n_groups"
    state: str = "mamba_d_state"
    kernel: str = "mamba_d_conv"
    expand: str = "mamba_expand"
    chunk: str = "mamba_chunk_size"
    bias: str = "mamba_proj_bias"
    conv_bias: str = "mamba_conv_bias"


def mamba_shape(
    config: Config, hidden: int, keys: MambaKeys, inner: int = 0, norm: bool = True
) -> MambaShape:
    """A Mamba 2 mixer of `inner` features, expand x hidden where it is 0; heads and groups divide it."""
    inner = inner or config.multiple(keys.expand, hidden)
    heads = config.count(keys.heads)
    if inner % heads:
        raise config.contradiction(
            keys.heads,
            f"{keys.heads} {heads} does not divide the {inner} features of the mixer; use a divisor",
        )
    stated = config.raw(keys.head_dim) if keys.head_dim else "auto"
    if stated not in ("auto", None) and config.integer(keys.head_dim) * heads != inner:
        raise config.contradiction(
            keys.head_dim,
            f"{keys.heads} {heads} x {keys.head_dim} {stated} is not the mixer's {inner} features; "
            f"use {inner // heads}",
        )
    groups = config.count(keys.groups)
    if heads % groups:
        raise config.contradiction(
            keys.groups, f"{keys.heads} {heads} is not a multiple of {keys.groups} {groups}; use a divisor"
        )
    return MambaShape(
        heads=heads,
        head_dim=inner // heads,
        state=config.integer(keys.state),
        groups=groups,
        kernel_size=config.count(keys.kernel),
        chunk=config.integer(keys.chunk),
        bias=config.flag(keys.bias),
        conv_bias=config.flag(keys.conv_bias),
        norm=norm,
    )


def selective_shape(config: Config, hidden: int, heads: int = 1, norms: bool = False) -> SelectiveShape:
    """A Mamba mixer under Jamba's and Zamba's keys."""
    inner = config.multiple("mamba_expand", hidden)
    if inner % heads:
        raise config.contradiction(
            "n_mamba_heads",
            f"n_mamba_heads {heads} does not divide the mixer's {inner} features; use a divisor",
        )
    return SelectiveShape(
        inner=inner,
        state=config.integer("mamba_d_state"),
        rank=step_rank(config, "mamba_dt_rank", hidden),
        heads=heads,
        kernel_size=config.count("mamba_d_conv"),
        bias=config.flag("mamba_proj_bias"),
        conv_bias=config.flag("mamba_conv_bias"),
        norms=norms,
    )


def step_rank(config: Config, key: str, hidden: int) -> int:
    """Features behind the step size: as stated, or a sixteenth of the hidden width."""
    if config.raw(key) == "auto":
        return math.ceil(hidden / RANK_DIVISOR)
    return config.integer(key)
