"""BitNet b1.58: Llama with a norm before each output matrix and squared-ReLU gates; ternary weights change no count."""

from collections.abc import Mapping

from cost_models.operators import Norm
from cost_models.operators.base import Operator
from cost_models.readers.blocks.attention import AttentionShape, attention_branch
from cost_models.readers.blocks.feed_forward import MlpShape, mlp_branch
from cost_models.readers.blocks.stream import Branch, Stream, chain, sublayer
from cost_models.readers.huggingface.common import (
    Parts,
    assemble,
    attention_shape,
    head_dim,
    read_decoder,
)
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.llama import LLAMA_DEFAULTS
from cost_models.readers.huggingface.routed import semantics
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **LLAMA_DEFAULTS,
    **sizes(
        vocab_size=128256,
        hidden_size=2560,
        intermediate_size=6912,
        num_hidden_layers=30,
        num_attention_heads=20,
        num_key_value_heads=5,
    ),
    **options(hidden_act="relu2", rms_norm_eps=1e-5, rope_theta=500000.0),
}
"""BitNetConfig of transformers 5.24."""


def read_bitnet(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type bitnet."""
    config = Config(raw, DEFAULTS, "bitnet")
    decoder = read_decoder(config, name)
    size = head_dim(config, decoder)
    if size * decoder.heads != decoder.hidden:
        raise config.contradiction(
            "head_dim",
            f"{decoder.heads} heads of {size} are not hidden_size {decoder.hidden}, which the norm behind them "
            "has; change one of them",
        )
    bias = config.flag("attention_bias")
    attention = attention_shape(config, decoder, qkv_bias=bias, out_bias=bias)
    mlp = MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_act"))
    stream = Stream(decoder.hidden)
    block = chain(
        lambda source: sublayer(stream, "attn", source, lambda inside: _attention(attention, stream, inside)),
        lambda source: sublayer(stream, "mlp", source, lambda inside: _feed_forward(mlp, stream, inside)),
    )
    parts = Parts(
        kinds={"dense": block},
        order=("dense",) * decoder.layers,
        semantics=semantics(config, weights="ternary"),
    )
    return assemble(config, decoder, stream, parts)


def _attention(shape: AttentionShape, stream: Stream, source: str) -> Branch:
    return _normed(attention_branch(shape, stream.hidden, source), "attn_sub_norm", stream.hidden)


def _feed_forward(shape: MlpShape, stream: Stream, source: str) -> Branch:
    return _normed(mlp_branch(shape, stream.hidden, source), "mlp_sub_norm", shape.width)


def _normed(branch: Branch, name: str, width: int) -> Branch:
    """A norm over all features before the last operator, the output linear; heads are divided, its weight is not."""
    *before, last = branch.operators
    norm: Operator = Norm(name=name, inputs=(before[-1].name,), width=width, sharded=True)
    return Branch((*before, norm, last.model_copy(update={"inputs": (name,)})), branch.outputs)
