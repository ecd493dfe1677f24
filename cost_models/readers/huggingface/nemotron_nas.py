"""Nemotron found by architecture search (DeciLM): each block has its own key/value heads and feed-forward width."""

from collections.abc import Mapping
from dataclasses import dataclass

from cost_models.operators.base import Operator
from cost_models.readers.blocks.attention import attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, feed_forward_sublayer
from cost_models.readers.blocks.stream import MAX_SIZE, Builder, Stream, chain
from cost_models.readers.huggingface.common import Decoder, Parts, assemble, attention_shape, read_decoder
from cost_models.readers.huggingface.config import Config, Default
from cost_models.readers.huggingface.llama import LLAMA_DEFAULTS
from cost_models.readers.huggingface.routed import semantics
from cost_models.specs.model import ModelSpec

FAMILY = "nemotron-nas"
DEFAULTS: Mapping[str, Default] = LLAMA_DEFAULTS
"""DeciLMConfig, published with the weights, is a LlamaConfig with block_configs, which have no default."""

WIDTH_STEP = 256
"""Feed-forward widths are rounded up to a multiple of this (block_config.py published with the weights)."""

KNOWN = {"attention": ("no_op", "n_heads_in_group", "window_length"), "ffn": ("no_op", "ffn_mult")}
"""Keys of a block that are read; any other must be null or false."""


@dataclass(frozen=True, slots=True)
class _Block:
    """Sizes of one block; 0 key/value heads or 0 width: the sub-layer and its norm are left out."""

    kv_heads: int
    window: int
    width: int

    @property
    def kind(self) -> str:
        """Name of the blocks of these sizes."""
        attention = f"kv{self.kv_heads}" if self.kv_heads else "no_attention"
        window = f"_window{self.window}" if self.window else ""
        return f"{attention}{window}_ffn{self.width}"


def read_nemotron_nas(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type nemotron-nas."""
    config = Config(raw, DEFAULTS, FAMILY)
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden)
    blocks = _blocks(config, decoder)
    kinds = {block.kind: _operators(config, decoder, stream, block) for block in dict.fromkeys(blocks)}
    groups = {block.kv_heads for block in blocks if block.kv_heads}
    parts = Parts(kinds=kinds, order=tuple(block.kind for block in blocks), semantics=semantics(config))
    model = assemble(config, decoder, stream, parts)
    return model.model_copy(update={"num_kv_heads": min(groups, default=decoder.heads)})


def _operators(config: Config, decoder: Decoder, stream: Stream, block: _Block) -> tuple[Operator, ...]:
    built: list[Builder] = []
    if block.kv_heads:
        bias = config.flag("attention_bias")
        attention = attention_shape(
            config,
            decoder,
            kv_heads=block.kv_heads,
            window=block.window,
            qkv_bias=bias,
            out_bias=bias,
        )
        built.append(attention_sublayer(stream, attention))
    if block.width:
        mlp = MlpShape(width=block.width, function=config.text("hidden_act"), bias=config.flag("mlp_bias"))
        built.append(feed_forward_sublayer(stream, mlp))
    return chain(*built)


def _blocks(config: Config, decoder: Decoder) -> tuple[_Block, ...]:
    stated = config.raw("block_configs")
    if not isinstance(stated, list | tuple):
        raise config.contradiction("block_configs", "block_configs is no list; give one object a layer")
    if len(stated) != decoder.layers:
        raise config.contradiction(
            "block_configs",
            f"block_configs describes {len(stated)} layers but num_hidden_layers is {decoder.layers}; "
            "make the two agree",
        )
    flat: dict[str, object] = {}
    for index, each in enumerate(stated):
        for part, known in KNOWN.items():
            inner = each.get(part) if isinstance(each, Mapping) else None
            where = f"block_configs/{index}/{part}"
            if not isinstance(inner, Mapping):
                raise config.contradiction(where, f"{where} is no object; give its sizes, or no_op true")
            flat |= {f"{where}/{key}": value for key, value in inner.items()}
            _refuse_others(config, where, inner, known)
    inside = Config(flat, {}, FAMILY)
    return tuple(_block(inside, f"block_configs/{index}", decoder) for index in range(decoder.layers))


def _refuse_others(config: Config, where: str, inner: Mapping[str, object], known: tuple[str, ...]) -> None:
    """Linears in place of a sub-layer, sparsity, sinks and whatever else a search may choose."""
    for key, value in inner.items():
        if key not in known and value is not None and value is not False:
            raise config.contradiction(
                f"{where}/{key}",
                f"{where}/{key} is {str(value)[:60]}, which this reader does not know; "
                "describe the model in a layers file",
            )


def _block(config: Config, where: str, decoder: Decoder) -> _Block:
    attention, ffn = f"{where}/attention", f"{where}/ffn"
    kv_heads = window = width = 0
    if not _left_out(config, attention):
        group = config.count(f"{attention}/n_heads_in_group")
        if decoder.heads % group:
            raise config.contradiction(
                f"{attention}/n_heads_in_group",
                f"num_attention_heads {decoder.heads} is not a multiple of n_heads_in_group {group}; "
                f"use a divisor of {decoder.heads}",
            )
        kv_heads = decoder.heads // group
        if config.listed(f"{attention}/window_length"):
            window = config.integer(f"{attention}/window_length")
    if not _left_out(config, ffn):
        width = _width(config, f"{ffn}/ffn_mult", decoder.hidden)
    if not kv_heads and not width:
        raise config.contradiction(
            where, f"{where} leaves out both its attention and its feed-forward; drop the layer"
        )
    return _Block(kv_heads, window, width)


def _left_out(config: Config, where: str) -> bool:
    return config.listed(f"{where}/no_op") and config.flag(f"{where}/no_op")


def _width(config: Config, key: str, hidden: int) -> int:
    """2/3 of ffn_mult x hidden, cut to a whole number and rounded up."""
    factor = config.number(key)
    if not 1 <= 2 * factor * hidden / 3 <= MAX_SIZE:
        raise config.contradiction(
            key, f"{key} {factor:g} makes no feed-forward of 1 to {MAX_SIZE} features; change it"
        )
    return -(-int(2 * factor * hidden / 3) // WIDTH_STEP) * WIDTH_STEP
