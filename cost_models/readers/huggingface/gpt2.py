"""GPT-2: learned positions, LayerNorm before, biases everywhere, plain GELU feed-forward, tied table."""

from collections.abc import Mapping

from cost_models.operators import Embedding
from cost_models.operators.base import Operator
from cost_models.readers.blocks.attention import AttentionShape, attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, feed_forward_sublayer
from cost_models.readers.blocks.stream import Stream, chain
from cost_models.readers.huggingface.common import Decoder, Parts, assemble, refuse_cross_attention
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **sizes(
        vocab_size=50257,
        n_positions=1024,
        n_embd=768,
        n_layer=12,
        n_head=12,
        n_inner=None,
        tie_word_embeddings=True,
        add_cross_attention=False,
    ),
    **options(
        activation_function="gelu_new",
        resid_pdrop=0.1,
        embd_pdrop=0.1,
        attn_pdrop=0.1,
        layer_norm_epsilon=1e-5,
        scale_attn_weights=True,
    ),
}
"""GPT2Config of transformers 5.24; a null n_inner means 4 x n_embd."""


def read_gpt2(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type gpt2."""
    return _read(Config(raw, DEFAULTS, "gpt2"), name)


def read_gpt_sw3(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type gpt-sw3, which the class of GPT-2 builds."""
    return _read(Config(raw, DEFAULTS, "gpt-sw3"), name)


def _read(config: Config, name: str) -> ModelSpec:
    refuse_cross_attention(config)
    decoder = _sizes(config, name)
    stream = Stream(decoder.hidden, norm="layer", dropout=config.number("resid_pdrop") > 0)
    table = Embedding(
        name="embedding",
        vocab_size=decoder.vocab,
        width=decoder.hidden,
        positions=decoder.max_seq_len,
        tie=decoder.embedding_tie,
        dropout=config.number("embd_pdrop") > 0,
    )
    parts = Parts(
        kinds={"dense": _block(config, stream, decoder.heads)},
        order=("dense",) * decoder.layers,
        first=(table,),
        semantics={
            "norm": "layer",
            "norm_eps": config.number("layer_norm_epsilon"),
            "activation": config.text("activation_function"),
            "position": "learned",
            "attention_scaled": config.flag("scale_attn_weights"),
        },
    )
    return assemble(config, decoder, stream, parts)


def _sizes(config: Config, name: str) -> Decoder:
    hidden, heads = config.integer("n_embd", "hidden_size"), config.count("n_head", "num_attention_heads")
    if hidden % heads:
        raise config.contradiction(
            "n_embd", f"n_embd {hidden} is not a multiple of n_head {heads}; change one of them"
        )
    return Decoder(
        name=name,
        hidden=hidden,
        layers=config.count("n_layer", "num_hidden_layers"),
        vocab=config.integer("vocab_size"),
        heads=heads,
        kv_heads=heads,
        max_seq_len=config.integer("n_positions", "max_position_embeddings"),
        tied=config.flag("tie_word_embeddings"),
    )


def _block(config: Config, stream: Stream, heads: int) -> tuple[Operator, ...]:
    attention = AttentionShape(
        heads=heads,
        head_dim=stream.hidden // heads,
        qkv_bias=True,
        out_bias=True,
        rope=False,
        dropout=config.number("attn_pdrop") > 0,
        fp32_softmax=False,
        one_projection=True,
    )
    mlp = MlpShape(
        width=_width(config, stream.hidden),
        gated=False,
        function=config.text("activation_function"),
        bias=True,
    )
    return chain(attention_sublayer(stream, attention), feed_forward_sublayer(stream, mlp))


def _width(config: Config, hidden: int) -> int:
    """Feed-forward width: n_inner, or 4 x n_embd where it is null or absent."""
    stated = config.optional_integer("n_inner")
    if stated is None and not config.states("n_inner"):
        config.note("n_inner", str(4 * hidden), changes_parameters=True)
    return stated or 4 * hidden
