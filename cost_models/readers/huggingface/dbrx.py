"""DBRX: grouped-query attention and 16 experts in every layer between LayerNorms without bias."""

from collections.abc import Mapping

from cost_models.readers.blocks.attention import AttentionShape
from cost_models.readers.blocks.feed_forward import MoeShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import Decoder, Parts, assemble, check_experts
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.routed import build_kinds
from cost_models.specs.model import ModelSpec

NESTED = ("attn_config", "ffn_config")
"""Objects inside a config, read as `attn_config/kv_n_heads`."""

DEFAULTS: Mapping[str, Default] = {
    **sizes(
        vocab_size=32000,
        d_model=2048,
        n_heads=16,
        n_layers=24,
        tie_word_embeddings=False,
    ),
    **sizes(
        **{
            "attn_config/kv_n_heads": 1,
            "ffn_config/ffn_hidden_size": 3584,
            "ffn_config/moe_num_experts": 4,
        }
    ),
    **options(
        **{
            "max_seq_len": 2048,
            "resid_pdrop": 0.0,
            "emb_pdrop": 0.0,
            "rope_theta": 10000.0,
            "attn_config/attn_pdrop": 0.0,
            "attn_config/clip_qkv": None,
            "ffn_config/moe_top_k": 1,
            "ffn_config/ffn_act_fn": "silu",
        }
    ),
}
"""DbrxConfig, DbrxAttentionConfig and DbrxFFNConfig of transformers 5.24."""


def read_dbrx(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type dbrx."""
    config = Config(_flattened(raw), DEFAULTS, "dbrx")
    decoder = _decoder(config, name)
    dropout = config.number("resid_pdrop") > 0 or config.number("emb_pdrop") > 0
    stream = Stream(decoder.hidden, norm="layer", norm_bias=False, dropout=dropout)
    moe = MoeShape(
        experts=config.count("ffn_config/moe_num_experts"),
        top_k=config.count("ffn_config/moe_top_k"),
        width=config.integer("ffn_config/ffn_hidden_size"),
        function=config.text("ffn_config/ffn_act_fn"),
    )
    check_experts(config, moe.experts, moe.top_k, key="ffn_config/moe_top_k")
    attention = AttentionShape(
        heads=decoder.heads,
        kv_heads=decoder.kv_heads,
        head_dim=decoder.hidden // decoder.heads,
        dropout=config.number("attn_config/attn_pdrop") > 0,
    )
    theta = "attn_config/rope_theta" if config.states("attn_config/rope_theta") else "rope_theta"
    parts = Parts(
        kinds=build_kinds(stream, {"moe": (attention, moe)}),
        order=("moe",) * decoder.layers,
        semantics={
            "norm": "layer",
            "activation": moe.function,
            "position": "rope",
            "rope_theta": config.number(theta),
            "router_scoring": "softmax",
            "router_normalise_top_k": True,
        },
        moe=moe,
    )
    return assemble(config, decoder, stream, parts)


def _flattened(raw: Mapping[str, object]) -> dict[str, object]:
    """The config with the keys of its nested objects beside the others, and the activation's name alone."""
    flat = {key: value for key, value in raw.items() if key not in NESTED}
    for outer in NESTED:
        inner = raw.get(outer)
        if isinstance(inner, Mapping):
            flat |= {f"{outer}/{key}": value for key, value in inner.items()}
        elif inner is not None:
            flat[f"{outer}/"] = inner
    function = flat.get("ffn_config/ffn_act_fn")
    if isinstance(function, Mapping):
        flat["ffn_config/ffn_act_fn"] = function.get("name")
    return flat


def _decoder(config: Config, name: str) -> Decoder:
    for outer in NESTED:
        if config.states(f"{outer}/"):
            raise config.contradiction(outer, f"{outer} is no object; give an object of its keys")
    hidden, heads = config.integer("d_model"), config.count("n_heads")
    keys = config.count("attn_config/kv_n_heads")
    if hidden % heads or heads % keys:
        raise config.contradiction(
            "n_heads",
            f"d_model {hidden} and n_heads {heads}, or n_heads {heads} and kv_n_heads {keys} do not divide; "
            "change one of them",
        )
    if config.flag("tie_word_embeddings"):
        raise config.contradiction(
            "tie_word_embeddings", "tie_word_embeddings is true, which DBRX does not know; set it to false"
        )
    return Decoder(
        name=name,
        hidden=hidden,
        layers=config.count("n_layers"),
        vocab=config.integer("vocab_size"),
        heads=heads,
        kv_heads=keys,
        max_seq_len=config.integer("max_seq_len", low=0),
        tied=False,
    )
