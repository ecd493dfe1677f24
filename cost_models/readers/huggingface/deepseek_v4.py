"""DeepSeek-V4: windows with compressed keys behind them, several residual streams, experts in every layer."""

from collections.abc import Mapping

from cost_models.readers.blocks.compressed_attention import (
    CompressedAttentionShape,
    compressed_attention_branch,
)
from cost_models.readers.blocks.feed_forward import MoeShape, moe_branch
from cost_models.readers.blocks.hyper_connection import HyperShape, hyper_head, hyper_sublayer
from cost_models.readers.blocks.stream import Stream, chain, head
from cost_models.readers.huggingface.common import DECODER_DEFAULTS, Decoder, Parts, assemble, read_decoder
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.routed import read_experts, semantics
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=129280,
        hidden_size=4096,
        moe_intermediate_size=2048,
        num_hidden_layers=43,
        num_attention_heads=64,
        num_key_value_heads=1,
        head_dim=512,
        q_lora_rank=1024,
        n_routed_experts=256,
        n_shared_experts=1,
        layer_types=None,
        compress_rates=None,
        hc_mult=4,
        o_groups=8,
        o_lora_rank=1024,
        index_n_heads=64,
        index_head_dim=128,
        mlp_bias=False,
    ),
    **options(
        num_experts_per_tok=6,
        scoring_func="sqrtsoftplus",
        norm_topk_prob=True,
        routed_scaling_factor=1.5,
        max_position_embeddings=1048576,
        sliding_window=128,
        index_topk=512,
        mlp_layer_types=None,
        num_nextn_predict_layers=0,
        partial_rotary_factor=0.125,
    ),
}
"""DeepseekV4Config of transformers 5.24, whose class builds no multi-token prediction whatever
num_nextn_predict_layers says."""

TYPES: Mapping[str, str] = {
    "sliding_attention": "sliding",
    "compressed_sparse_attention": "sparse",
    "heavily_compressed_attention": "heavy",
}
"""Values of layer_types, and the words used here."""

RATIOS: Mapping[int, str] = {0: "sliding", 4: "sparse", 128: "heavy"}
"""Values of compress_ratios, the published spelling of layer_types."""

RATES: Mapping[str, tuple[str, str, int]] = {
    "sparse": ("compressed_sparse_attention", "compress_rate_csa", 4),
    "heavy": ("heavily_compressed_attention", "compress_rate_hca", 128),
}
"""Key in compress_rates, older key, and default of the positions that one compressed key stands for."""

FEED_TYPES: Mapping[str, str] = {"moe": "moe", "hash_moe": "hash_moe"}
"""Values of mlp_layer_types: experts by score, or by a fixed table of tokens."""

HASH_LAYERS = 3
"""First layers that route by a table, where the config does not say."""


def read_deepseek_v4(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type deepseek_v4."""
    config = Config(raw, DEFAULTS, "deepseek_v4")
    decoder = read_decoder(config, name)
    if decoder.kv_heads != 1:
        raise config.contradiction(
            "num_key_value_heads",
            f"num_key_value_heads is {decoder.kv_heads}, but the class has 1 head of keys",
        )
    mixers, feeds = _mixers(config, decoder.layers), _feeds(config, decoder.layers)
    order = tuple(f"{feed}_{mixer}" for feed, mixer in zip(feeds, mixers, strict=True))
    stream, hyper, moe = Stream(decoder.hidden), HyperShape(streams=config.integer("hc_mult")), _moe(config)
    kinds = {}
    for kind, mixer in dict(zip(order, mixers, strict=True)).items():
        shape = _attention(config, decoder, mixer)
        kinds[kind] = chain(
            hyper_sublayer(
                stream,
                hyper,
                "attn",
                lambda source, shape=shape: compressed_attention_branch(shape, decoder.hidden, source),  # type: ignore[misc]
            ),
            hyper_sublayer(stream, hyper, "mlp", lambda source: moe_branch(moe, decoder.hidden, source)),
        )
    if config.raw("num_nextn_predict_layers") != 0 or not config.states("num_nextn_predict_layers"):
        config.note("num_nextn_predict_layers", "0: the class builds none", changes_parameters=True)
    first, *rest = head(stream, decoder.vocab, decoder.embedding_tie)
    parts = Parts(
        kinds=kinds,
        order=order,
        semantics=semantics(
            config,
            router_scoring=config.text("scoring_func"),
            router_scaling=config.number("routed_scaling_factor"),
            router_bias_correction=True,
        ),
        moe=moe,
        boundary=hyper.streams * decoder.hidden,
        last=(*hyper_head(stream, hyper), first.model_copy(update={"inputs": ("collapse",)}), *rest),
    )
    return assemble(config, decoder, stream, parts)


def _attention(config: Config, decoder: Decoder, word: str) -> CompressedAttentionShape:
    dim, groups = config.integer("head_dim"), config.count("o_groups")
    if (decoder.heads * dim) % groups:
        raise config.contradiction(
            "o_groups",
            f"o_groups {groups} does not divide {decoder.heads} heads of {dim}; use a divisor of {decoder.heads}",
        )
    sparse = word == "sparse"
    return CompressedAttentionShape(
        heads=decoder.heads,
        head_dim=dim,
        rope_dim=_rotated(config, dim),
        q_lora_rank=config.integer("q_lora_rank"),
        groups=groups,
        group_rank=config.integer("o_lora_rank"),
        window=config.integer("sliding_window"),
        dropout=config.number("attention_dropout") > 0,
        rate=_rate(config, word),
        overlap=sparse,
        top_k=config.integer("index_topk") if sparse else 0,
        index_heads=config.count("index_n_heads") if sparse else 0,
        index_dim=config.integer("index_head_dim") if sparse else 0,
    )


def _rotated(config: Config, dim: int) -> int:
    """Features of a head that are rotated: qk_rope_head_dim (older), or a share of the head."""
    if config.listed("qk_rope_head_dim"):
        return config.integer("qk_rope_head_dim", high=dim)
    share = (
        config.number("partial_rotary_factor") if config.raw("partial_rotary_factor") is not None else 0.125
    )
    return max(1, min(dim, int(dim * share)))


def _rate(config: Config, word: str) -> int:
    if word not in RATES:
        return 0
    key, older, default = RATES[word]
    if config.listed(older):
        return config.integer(older)
    rates = config.raw("compress_rates")
    if rates is None:
        return default
    if not isinstance(rates, Mapping) or not isinstance(rates.get(key), int):
        raise config.contradiction(
            "compress_rates",
            f"compress_rates has no whole number under {key}; give one, or drop compress_rates",
        )
    return Config(rates, {}, config.family).integer(key)


def _mixers(config: Config, layers: int) -> tuple[str, ...]:
    """As listed by name, or by ratio; else two heavily compressed layers, then both kinds in turn."""
    if config.listed("layer_types"):
        return config.texts("layer_types", layers, TYPES)
    if config.listed("compress_ratios"):
        ratios = config.integers("compress_ratios", low=0)
        unknown = sorted(set(ratios) - set(RATIOS))
        if unknown or len(ratios) < layers:
            raise config.contradiction(
                "compress_ratios",
                f"compress_ratios has {len(ratios)} entries for {layers} layers, and {unknown} are not known; "
                f"give one of {list(RATIOS)} a layer",
            )
        return tuple(RATIOS[each] for each in ratios[:layers])
    config.raw("layer_types")
    return tuple("sparse" if i >= 2 and i % 2 else "heavy" for i in range(layers))


def _feeds(config: Config, layers: int) -> tuple[str, ...]:
    if config.listed("mlp_layer_types"):
        return config.texts("mlp_layer_types", layers, FEED_TYPES)
    listed = config.listed("num_hash_layers")
    hashed = config.integer("num_hash_layers", low=0) if listed else HASH_LAYERS
    if not listed:
        config.note("num_hash_layers", str(hashed), changes_parameters=False)
    return tuple("hash_moe" if i < hashed else "moe" for i in range(layers))


def _moe(config: Config) -> MoeShape:
    experts, top_k = read_experts(config, ("n_routed_experts", "num_local_experts"))
    width = config.integer("moe_intermediate_size", "intermediate_size")
    if config.integer("n_shared_experts") != 1:
        raise config.contradiction(
            "n_shared_experts", "n_shared_experts is not 1, the number that the class builds"
        )
    return MoeShape(
        experts=experts,
        top_k=top_k,
        width=width,
        function=config.text("hidden_act"),
        shared_width=width,
        bias=config.flag("mlp_bias"),
    )
