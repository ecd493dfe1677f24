"""Zamba (Glorioso et al. 2024) and Zamba 2: Mamba layers, and blocks of attention that several layers share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cost_models.operators import AdapterBank, Norm, Residual
from cost_models.operators.base import Operator
from cost_models.readers.blocks.attention import AttentionShape, attention_branch
from cost_models.readers.blocks.feed_forward import MlpShape, mlp_branch
from cost_models.readers.blocks.mamba import MambaShape, SelectiveShape, mamba_branch, selective_branch
from cost_models.readers.blocks.stream import Branch, Stream, chain, replicated, row, sublayer
from cost_models.readers.huggingface.common import (
    DECODER_DEFAULTS,
    Decoder,
    Parts,
    assemble,
    attention_shape,
    read_decoder,
    rope_semantics,
)
from cost_models.readers.huggingface.config import Config, Default, Scalar, options, sizes
from cost_models.readers.huggingface.state_space import MambaKeys, mamba_shape, selective_shape
from cost_models.specs.model import ModelSpec

_SHARED: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=32000,
        layers_block_type=None,
        mamba_d_conv=4,
        mamba_expand=2,
        attention_head_dim=None,
        tie_word_embeddings=True,
    ),
    **options(hidden_act="gelu", max_position_embeddings=4096, rms_norm_eps=1e-5),
}
ZAMBA_DEFAULTS: Mapping[str, Default] = {
    **_SHARED,
    **sizes(
        hidden_size=3712,
        attention_hidden_size=None,
        intermediate_size=14848,
        num_hidden_layers=76,
        num_attention_heads=16,
        num_key_value_heads=16,
        n_mamba_heads=2,
        attn_layer_period=6,
        attn_layer_offset=4,
        mamba_d_state=16,
        mamba_dt_rank="auto",
        mamba_conv_bias=True,
        mamba_proj_bias=False,
    ),
}
ZAMBA2_DEFAULTS: Mapping[str, Default] = {
    **_SHARED,
    **sizes(
        hidden_size=2560,
        intermediate_size=None,
        num_hidden_layers=54,
        num_attention_heads=32,
        num_key_value_heads=None,
        n_mamba_heads=8,
        mamba_d_state=64,
        mamba_ngroups=1,
        add_bias_linear=False,
        num_mem_blocks=1,
        use_shared_attention_adapter=False,
        adapter_rank=128,
    ),
    **options(chunk_size=256, use_mem_rope=False, use_conv_bias=True),
}
"""ZambaConfig and Zamba2Config of transformers 5.24."""

ZAMBA2_KEYS = MambaKeys(
    heads="n_mamba_heads",
    head_dim="",
    groups="mamba_ngroups",
    chunk="chunk_size",
    bias="add_bias_linear",
    conv_bias="use_conv_bias",
)
"""The class reads use_conv_bias for its kernels only: the convolution has a bias in any case."""

BLOCKS: Mapping[str, str] = {"linear_attention": "mamba", "mamba": "mamba", "hybrid": "hybrid"}
"""Values of layers_block_type, under their newer and older names."""

ZAMBA_FIRST = ("mamba", "mamba", "hybrid")
"""Layers before the period begins."""
ZAMBA2_RUNS = (6, 5, 5, 5, 5, 5, 5, 4, 3, 2)
"""Mamba layers before each hybrid layer of the default order, and behind the last."""


@dataclass(frozen=True, slots=True)
class Adapters:
    """Low-rank pairs of a shared block: how many, their rank, whether queries, keys and values have them too."""

    choices: int
    rank: int
    attention: bool


@dataclass(frozen=True, slots=True)
class Shared:
    """A transformer block that several layers use, over the stream beside the embedded tokens."""

    attention: AttentionShape
    mlp: MlpShape
    hidden: int
    tied: bool
    """Models with a head of their own do not tie the uses of a block either (transformers 5.24)."""

    def operators(self, name: str, adapters: Adapters | None) -> tuple[Operator, ...]:
        """Norm over both halves, attention back to the stream's width, norm, feed-forward; no residuals inside."""
        wide = 2 * self.hidden
        attend = attention_branch(self.attention, wide, "attn_norm").operators[:-1]
        inner = self.attention.heads * self.attention.value_dim
        found: list[Operator] = [Norm(name="attn_norm", inputs=("both",), width=wide), *attend]
        if adapters and adapters.attention:
            found += [
                _bank(f"{each}_adapter", "attn_norm", (wide, inner), adapters) for each in ("q", "k", "v")
            ]
        found += [
            row("proj", "core_attention", inner, self.hidden),
            Norm(name="mlp_norm", inputs=("proj",), width=self.hidden),
            *mlp_branch(self.mlp, self.hidden, "mlp_norm").operators,
        ]
        if adapters:
            widths = (self.hidden, 2 * self.mlp.width)
            found.append(_bank("mlp_adapter", "mlp_norm", widths, adapters))
        shares = name if self.tied else ""
        return tuple(operator.model_copy(update={"shares": shares}) for operator in found)


def _bank(name: str, source: str, widths: tuple[int, int], adapters: Adapters) -> AdapterBank:
    return AdapterBank(
        name=name,
        inputs=(source,),
        choices=adapters.choices,
        in_features=widths[0],
        rank=adapters.rank,
        out_features=widths[1],
    )


def read_zamba(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type zamba: one shared block."""
    config = Config(raw, ZAMBA_DEFAULTS, "zamba")
    decoder = read_decoder(config, name)
    wide = config.optional_integer("attention_hidden_size")
    if wide not in (None, 2 * decoder.hidden):
        raise config.contradiction(
            "attention_hidden_size",
            f"attention_hidden_size {wide} is not twice hidden_size {decoder.hidden}; use {2 * decoder.hidden}",
        )
    shared = Shared(
        attention=_attention(config, decoder, rope=False),
        mlp=MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_act")),
        hidden=decoder.hidden,
        tied=decoder.tied,
    )
    mixer = selective_shape(config, decoder.hidden, config.count("n_mamba_heads"))
    order = _listed(config, decoder) or _zamba_order(config, decoder.layers)
    blocks = {"hybrid": shared.operators("shared_block", None)}
    return _model(config, decoder, mixer, blocks, order)


def read_zamba2(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type zamba2: shared blocks in turn, with adapters for each use."""
    config = Config(raw, ZAMBA2_DEFAULTS, "zamba2")
    decoder = read_decoder(config, name)
    width = config.optional_integer("intermediate_size") or 4 * decoder.hidden
    shared = Shared(
        attention=_attention(config, decoder, rope=config.flag("use_mem_rope")),
        mlp=MlpShape(width=width, function=config.text("hidden_act"), bias=config.flag("add_bias_linear")),
        hidden=decoder.hidden,
        tied=decoder.tied,
    )
    mixer = mamba_shape(config, decoder.hidden, ZAMBA2_KEYS).model_copy(update={"conv_bias": True})
    plain = _listed(config, decoder) or _zamba2_order(config, decoder.layers)
    turns, uses = config.count("num_mem_blocks"), plain.count("hybrid")
    order: list[str] = []
    for each in plain:
        seen = sum(kind.startswith("hybrid") for kind in order)
        order.append(f"hybrid_{seen % turns}" if each == "hybrid" else each)
    blocks = {}
    for block in range(min(turns, uses)):
        adapters = Adapters(
            choices=len(range(block, uses, turns)),
            rank=config.integer("adapter_rank"),
            attention=config.flag("use_shared_attention_adapter"),
        )
        blocks[f"hybrid_{block}"] = shared.operators(f"shared_block_{block}", adapters)
    return _model(config, decoder, mixer, blocks, tuple(order))


def _attention(config: Config, decoder: Decoder, rope: bool) -> AttentionShape:
    """Heads over twice the stream's width: each has twice hidden / heads features unless stated."""
    stated, wide = config.optional_integer("attention_head_dim", "head_dim"), 2 * decoder.hidden
    if config.family == "zamba2" and stated not in (None, wide // decoder.heads):
        raise config.contradiction(
            "attention_head_dim",
            f"attention_head_dim {stated} is not 2 x hidden_size / num_attention_heads = "
            f"{wide // decoder.heads}, which the class takes; make it so",
        )
    if stated is not None:
        return attention_shape(config, decoder, rope=rope)
    return AttentionShape(
        heads=decoder.heads,
        kv_heads=decoder.kv_heads,
        head_dim=max(wide // decoder.heads, 1),
        rope=rope,
        dropout=config.number("attention_dropout") > 0,
    )


def _listed(config: Config, decoder: Decoder) -> tuple[str, ...]:
    """Kinds by layer where the config lists them."""
    for key in ("layers_block_type", "layer_types"):
        if config.listed(key):
            return config.texts(key, decoder.layers, BLOCKS)
    config.raw("layers_block_type")
    return ()


def _zamba_order(config: Config, layers: int) -> tuple[str, ...]:
    period, offset = config.count("attn_layer_period"), config.integer("attn_layer_offset", low=0)
    rest = range(layers - len(ZAMBA_FIRST))
    return (*ZAMBA_FIRST, *("hybrid" if layer % period == offset else "mamba" for layer in rest))[:layers]


def _zamba2_order(config: Config, layers: int) -> tuple[str, ...]:
    order: list[str] = []
    for run in ZAMBA2_RUNS:
        order += [*("mamba",) * run, "hybrid"]
    order.pop()
    if layers != len(order):
        raise config.contradiction(
            "layers_block_type",
            f"num_hidden_layers {layers} has no order of layers: the class knows one of {len(order)} only; "
            "list layers_block_type",
        )
    return tuple(order)


def _model(
    config: Config,
    decoder: Decoder,
    mixer: MambaShape | SelectiveShape,
    blocks: Mapping[str, tuple[Operator, ...]],
    order: tuple[str, ...],
) -> ModelSpec:
    stream, mix = Stream(decoder.hidden), _mixer(mixer, decoder.hidden)
    kinds: dict[str, tuple[Operator, ...]] = {
        "mamba": chain(lambda source: sublayer(stream, "mamba", source, mix))
    }
    for kind, operators in blocks.items():
        kinds[kind] = _hybrid(stream, operators, mix)
    semantics: dict[str, Scalar] = {
        "norm": "rms",
        "norm_eps": config.number("rms_norm_eps"),
        "activation": config.text("hidden_act"),
        "position": "none",
    }
    if any(operator.name == "rope" for operators in blocks.values() for operator in operators):
        semantics |= {"position": "rope", **rope_semantics(config)}
    return assemble(config, decoder, stream, Parts(kinds=kinds, order=order, semantics=semantics))


def _mixer(shape: MambaShape | SelectiveShape, hidden: int) -> Callable[[str], Branch]:
    if isinstance(shape, MambaShape):
        return lambda source: mamba_branch(shape, hidden, source)
    return lambda source: selective_branch(shape, hidden, source)


def _hybrid(
    stream: Stream, shared: tuple[Operator, ...], mix: Callable[[str], Branch]
) -> tuple[Operator, ...]:
    """The shared block over stream and embedded tokens, a linear of the layer's own, then Mamba over the sum.

    Joining both halves moves as much as an addition of their width.
    """
    hidden = stream.hidden
    branch = mix("mamba_norm")
    return (
        Residual(name="both", inputs=("x", "embedded"), width=2 * hidden),
        *shared,
        replicated("linear", "down", hidden, hidden),
        Residual(name="sum", inputs=("x", "linear"), width=hidden),
        stream.normalise("mamba_norm", "sum"),
        *branch.operators,
        Residual(name="mamba_residual", inputs=("x", *branch.outputs), width=hidden),
    )
