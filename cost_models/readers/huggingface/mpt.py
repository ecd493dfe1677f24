"""MPT: ALiBi, LayerNorm without biases, plain GELU feed-forward, tied table."""

from collections.abc import Mapping

from cost_models.readers.blocks.feed_forward import MlpShape
from cost_models.readers.blocks.stream import Stream, embedding
from cost_models.readers.huggingface.config import Config, Default, Scalar, options, sizes
from cost_models.readers.huggingface.dense import SizeKeys, multi_head, read_multi_head, uniform
from cost_models.specs.model import ModelSpec

FEED_FORWARD_RATIO = 4
DEFAULTS: Mapping[str, Default] = {
    **sizes(
        d_model=2048,
        n_heads=16,
        n_layers=24,
        vocab_size=50368,
        expansion_ratio=FEED_FORWARD_RATIO,
        no_bias=True,
        tie_word_embeddings=True,
    ),
    **options(max_seq_len=2048, resid_pdrop=0.0, emb_pdrop=0.0, layer_norm_epsilon=1e-5),
}
"""MptConfig of transformers 5.24."""

ATTENTION_DEFAULTS: Mapping[str, Default] = {
    **sizes(attn_type="multihead_attention", qk_ln=False, alibi=True),
    **options(attn_pdrop=0.0),
}
"""MptAttentionConfig of transformers 5.24."""

KEYS = SizeKeys(
    hidden=("d_model", "hidden_size"),
    layers=("n_layers", "num_hidden_layers"),
    heads=("n_heads", "num_attention_heads"),
    positions=("max_seq_len",),
)


def read_mpt(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type mpt, as MptForCausalLM builds it: variants that the class ignores are refused."""
    config = Config(raw, DEFAULTS, "mpt")
    attention_config = Config(_nested(config, raw), ATTENTION_DEFAULTS, "mpt attn_config")
    _refuse_variants(config, attention_config)
    decoder = read_multi_head(config, name, KEYS)
    dropout = attention_config.number("attn_pdrop") > 0
    stream = Stream(decoder.hidden, norm="layer", norm_bias=False, dropout=dropout)
    attention = multi_head(config, decoder, "resid_pdrop", rope=False).model_copy(update={"dropout": dropout})
    mlp = MlpShape(width=FEED_FORWARD_RATIO * decoder.hidden, gated=False, function="gelu")
    table = embedding(decoder.vocab, decoder.hidden, decoder.embedding_tie, config.number("emb_pdrop") > 0)
    semantics: dict[str, Scalar] = {"norm_eps": config.number("layer_norm_epsilon"), "position": "alibi"}
    model = uniform(decoder, stream, attention, mlp).model(config, decoder, semantics, first=(table,))
    return model.model_copy(update={"assumed": (*model.assumed, *attention_config.assumed)})


def _nested(config: Config, raw: Mapping[str, object]) -> Mapping[str, object]:
    """The attention's own config; null or absent means its defaults."""
    nested = raw.get("attn_config")
    if nested is None:
        return {}
    if not isinstance(nested, Mapping):
        raise config.contradiction("attn_config", f"attn_config is {str(nested)[:60]}; give an object")
    return nested


def _refuse_variants(config: Config, attention: Config) -> None:
    ratio = config.raw("expansion_ratio")
    found = {
        "expansion_ratio": ratio == FEED_FORWARD_RATIO,
        "no_bias": config.flag("no_bias"),
        "attn_config/attn_type": attention.text("attn_type") == "multihead_attention",
        "attn_config/qk_ln": not attention.flag("qk_ln"),
        "attn_config/alibi": attention.flag("alibi"),
    }
    for key, usual in found.items():
        if not usual:
            raise config.contradiction(
                key,
                f"{key} has a value that MptForCausalLM does not build; use expansion_ratio 4, no_bias true, "
                "multi-head attention with ALiBi and without q/k norms, or write a layers file",
            )
