"""GPT-BigCode (SantaCoder, StarCoder): GPT-2's block with one key/value head for all queries."""

from collections.abc import Mapping

from cost_models.operators import Embedding
from cost_models.readers.blocks.feed_forward import MlpShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import refuse_cross_attention
from cost_models.readers.huggingface.config import Config, Default, Scalar, options, sizes
from cost_models.readers.huggingface.dense import (
    SizeKeys,
    inner_width,
    multi_head,
    read_multi_head,
    uniform,
    with_kv_heads,
)
from cost_models.readers.huggingface.gpt2 import DEFAULTS as GPT2_DEFAULTS
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **GPT2_DEFAULTS,
    **sizes(multi_query=True),
    **options(activation_function="gelu_pytorch_tanh"),
}
"""GPTBigCodeConfig of transformers 5.24; a null n_inner means 4 x n_embd."""


def read_gpt_bigcode(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type gpt_bigcode."""
    config = Config(raw, DEFAULTS, "gpt_bigcode")
    refuse_cross_attention(config)
    decoder = read_multi_head(config, name, SizeKeys())
    if config.flag("multi_query"):
        decoder = with_kv_heads(decoder, 1)
    stream = Stream(decoder.hidden, norm="layer", dropout=config.number("resid_pdrop") > 0)
    attention = multi_head(config, decoder, "attn_pdrop", qkv_bias=True, out_bias=True, rope=False)
    mlp = MlpShape(
        width=inner_width(config, "n_inner", decoder.hidden),
        gated=False,
        function=config.text("activation_function"),
        bias=True,
    )
    table = Embedding(
        name="embedding",
        vocab_size=decoder.vocab,
        width=decoder.hidden,
        positions=decoder.max_seq_len,
        tie=decoder.embedding_tie,
        dropout=config.number("embd_pdrop") > 0,
    )
    semantics: dict[str, Scalar] = {
        "norm_eps": config.number("layer_norm_epsilon"),
        "position": "learned",
        "attention_scaled": config.flag("scale_attn_weights"),
    }
    return uniform(decoder, stream, attention, mlp).model(config, decoder, semantics, first=(table,))
