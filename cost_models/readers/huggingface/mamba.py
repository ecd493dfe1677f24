"""Mamba (2023), Falcon-Mamba and Mamba 2 (2024): one mixer a layer, no attention, no feed-forward."""

from collections.abc import Mapping

from cost_models.readers.blocks.mamba import SelectiveShape, mamba_sublayer, selective_sublayer
from cost_models.readers.blocks.stream import Builder, Stream, chain
from cost_models.readers.huggingface.common import Decoder, Parts, assemble
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.state_space import MambaKeys, mamba_shape, step_rank
from cost_models.specs.model import ModelSpec

MAMBA_DEFAULTS: Mapping[str, Default] = {
    **sizes(
        vocab_size=50280,
        hidden_size=768,
        num_hidden_layers=32,
        state_size=16,
        expand=2,
        conv_kernel=4,
        use_bias=False,
        use_conv_bias=True,
        time_step_rank="auto",
        tie_word_embeddings=True,
    ),
    **options(hidden_act="silu", layer_norm_epsilon=1e-5),
}
"""MambaConfig and FalconMambaConfig of transformers 5.24."""

MAMBA2_DEFAULTS: Mapping[str, Default] = {
    **sizes(
        vocab_size=32768,
        hidden_size=4096,
        num_hidden_layers=64,
        num_heads=128,
        head_dim=64,
        state_size=128,
        n_groups=8,
        expand=2,
        conv_kernel=4,
        use_bias=False,
        use_conv_bias=True,
        tie_word_embeddings=False,
    ),
    **options(hidden_act="silu", layer_norm_epsilon=1e-5, chunk_size=256),
}
"""Mamba2Config of transformers 5.24."""

MAMBA2_KEYS = MambaKeys(
    heads="num_heads",
    head_dim="head_dim",
    groups="n_groups",
    state="state_size",
    kernel="conv_kernel",
    expand="expand",
    chunk="chunk_size",
    bias="use_bias",
    conv_bias="use_conv_bias",
)


def read_mamba(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type mamba."""
    return _read_selective(Config(raw, MAMBA_DEFAULTS, "mamba"), name)


def read_falcon_mamba(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type falcon_mamba: Mamba with norms without weights on steps, B and C."""
    return _read_selective(Config(raw, MAMBA_DEFAULTS, "falcon_mamba"), name)


def read_mamba2(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type mamba2."""
    config = Config(raw, MAMBA2_DEFAULTS, "mamba2")
    decoder = _sizes(config, name)
    stream = Stream(decoder.hidden)
    return _model(config, decoder, mamba_sublayer(stream, mamba_shape(config, decoder.hidden, MAMBA2_KEYS)))


def _read_selective(config: Config, name: str) -> ModelSpec:
    decoder = _sizes(config, name)
    shape = SelectiveShape(
        inner=_inner(config, decoder.hidden),
        state=config.integer("state_size"),
        rank=step_rank(config, "time_step_rank", decoder.hidden),
        kernel_size=config.count("conv_kernel"),
        bias=config.flag("use_bias"),
        conv_bias=config.flag("use_conv_bias"),
    )
    return _model(config, decoder, selective_sublayer(Stream(decoder.hidden), shape))


def _inner(config: Config, hidden: int) -> int:
    """Expand x hidden; a stated intermediate_size must agree."""
    inner = config.multiple("expand", hidden)
    if config.listed("intermediate_size") and config.integer("intermediate_size") != inner:
        raise config.contradiction(
            "intermediate_size",
            f"intermediate_size {config.integer('intermediate_size')} is not expand x hidden_size = {inner}; "
            "make the two agree",
        )
    return inner


def _sizes(config: Config, name: str) -> Decoder:
    return Decoder(
        name=name,
        hidden=config.integer("hidden_size", "d_model"),
        layers=config.count("num_hidden_layers", "n_layer"),
        vocab=config.integer("vocab_size"),
        heads=0,
        kv_heads=0,
        max_seq_len=0,
        tied=config.flag("tie_word_embeddings"),
    )


def _model(config: Config, decoder: Decoder, mixer: Builder) -> ModelSpec:
    parts = Parts(
        kinds={"mamba": chain(mixer)},
        order=("mamba",) * decoder.layers,
        semantics={
            "norm": "rms",
            "norm_eps": config.number("layer_norm_epsilon"),
            "activation": config.text("hidden_act"),
            "position": "none",
        },
    )
    return assemble(config, decoder, Stream(decoder.hidden), parts)
