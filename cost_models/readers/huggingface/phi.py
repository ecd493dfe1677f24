"""Phi 1 to 4: Phi 1 to 2 side by side with biases (`phi`); Phi 3, 3.5 and 4 as Llama with fused linears (`phi3`)."""

from collections.abc import Mapping

from cost_models.readers.blocks.feed_forward import MlpShape
from cost_models.readers.blocks.stream import Stream, embedding, head
from cost_models.readers.huggingface.common import (
    DECODER_DEFAULTS,
    attention_shape,
    head_dim,
    read_decoder,
)
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.dense import rope_of, rotated_features, uniform, window_of
from cost_models.specs.model import ModelSpec

PHI_DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=51200,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=24,
        num_attention_heads=32,
        num_key_value_heads=None,
        qk_layernorm=False,
    ),
    **options(
        hidden_act="gelu_new",
        layer_norm_eps=1e-5,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        partial_rotary_factor=0.5,
    ),
}
"""PhiConfig of transformers 5.24."""

PHI3_DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=32064,
        hidden_size=3072,
        intermediate_size=8192,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=None,
    ),
    **options(
        max_position_embeddings=4096,
        rms_norm_eps=1e-5,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        sliding_window=None,
        partial_rotary_factor=1.0,
    ),
}
"""Phi3Config of transformers 5.24."""

PHI3_BIASES = ("attention_bias", "mlp_bias", "lm_head_bias")
"""Keys of some Phi 4 configs that Phi3ForCausalLM does not read; false in every published one."""


def read_phi(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type phi: one LayerNorm, then attention and feed-forward side by side; a head with a bias."""
    config = Config(raw, PHI_DEFAULTS, "phi")
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden, norm="layer", dropout=config.number("resid_pdrop") > 0)
    dim = head_dim(config, decoder)
    if config.flag("qk_layernorm") and dim * decoder.heads != decoder.hidden:
        raise config.contradiction(
            "head_dim",
            f"head_dim {dim} is not hidden_size {decoder.hidden} / num_attention_heads {decoder.heads}, as the "
            "q/k norms of PhiForCausalLM need; change head_dim or set qk_layernorm to false",
        )
    rotated = rotated_features(config, dim, "partial_rotary_factor")
    attention = attention_shape(
        config, decoder, qkv_bias=True, out_bias=True, rope_dim=rotated, qk_norm=config.flag("qk_layernorm")
    ).model_copy(update={"qk_norm_kind": "layer", "qk_norm_bias": True})
    mlp = MlpShape(
        width=config.integer("intermediate_size"), gated=False, function=config.text("hidden_act"), bias=True
    )
    tie = decoder.embedding_tie
    first = (embedding(decoder.vocab, decoder.hidden, tie, config.number("embd_pdrop") > 0),)
    semantics = {
        "norm_eps": config.number("layer_norm_eps"),
        "position": "rope",
        "rotary_dim": rotated,
        **rope_of(config),
    }
    last = head(stream, decoder.vocab, tie, bias=True)
    return uniform(decoder, stream, attention, mlp, parallel_norms=1).model(
        config, decoder, semantics, first=first, last=last
    )


def read_phi3(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type phi3."""
    config = Config(raw, PHI3_DEFAULTS, "phi3")
    for key in PHI3_BIASES:
        if config.listed(key) and config.flag(key):
            raise config.contradiction(key, f"{key} is true, which Phi3ForCausalLM does not build; remove it")
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden, dropout=config.number("resid_pdrop") > 0)
    rotated = rotated_features(config, head_dim(config, decoder), "partial_rotary_factor")
    attention = attention_shape(config, decoder, rope_dim=rotated, window=window_of(config))
    mlp = MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_act"))
    dropout = config.number("embd_pdrop") > 0
    first = (embedding(decoder.vocab, decoder.hidden, decoder.embedding_tie, dropout),)
    semantics = {
        "norm_eps": config.number("rms_norm_eps"),
        "position": "rope",
        "rotary_dim": rotated,
        **rope_of(config),
    }
    return uniform(decoder, stream, attention, mlp).model(config, decoder, semantics, first=first)
