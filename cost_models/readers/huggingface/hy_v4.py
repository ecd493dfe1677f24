"""Hunyuan 4: latent attention over chosen keys, with gates and sinks; several residual streams; experts."""

from collections.abc import Mapping

from cost_models.operators.base import Operator
from cost_models.readers.blocks.attention import LatentAttentionShape, latent_attention_branch
from cost_models.readers.blocks.feed_forward import MlpShape, MoeShape, mlp_branch, moe_branch
from cost_models.readers.blocks.hyper_connection import HyperShape, hyper_head, hyper_sublayer
from cost_models.readers.blocks.stream import Branch, Stream, chain, head
from cost_models.readers.huggingface.common import Parts, assemble, read_decoder
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.deepseek import latent_mlp, latent_moe
from cost_models.readers.huggingface.deepseek_kin import INDEXERS
from cost_models.readers.huggingface.latent_kin import SHARED, indexed_attention, sigmoid_semantics
from cost_models.readers.huggingface.routed import FEED_FORWARD_TYPES
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **SHARED,
    **sizes(
        vocab_size=120832,
        hidden_size=2816,
        intermediate_size=6912,
        moe_intermediate_size=768,
        num_hidden_layers=34,
        n_routed_experts=256,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_nope_head_dim=192,
        qk_rope_head_dim=64,
        v_head_dim=256,
        index_head_dim=128,
        index_n_heads=16,
        indexer_types=None,
        hc_mult=4,
    ),
    **options(
        index_topk=2048,
        max_position_embeddings=262144,
        rms_norm_eps=1e-5,
        routed_scaling_factor=2.827,
    ),
}
"""HYV4Config of transformers 5.24."""

INDEXER_EVERY = 4
"""Hunyuan 4's indexers where indexer_types is null: in the first two layers and every fourth after the second."""


def read_hy_v4(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type hy_v4: an indexer in some layers, gates, sinks, several residual streams."""
    heads = Config(raw, DEFAULTS, "hy_v4").count("num_attention_heads")
    config = Config({**raw, "num_key_value_heads": heads}, DEFAULTS, "hy_v4")  # the class never groups keys
    decoder = read_decoder(config, name)
    feeds, indexers = _feeds(config, decoder.layers), _indexers(config, decoder.layers)
    order = tuple(feed + indexer for feed, indexer in zip(feeds, indexers, strict=True))
    full = indexed_attention(config).model_copy(update={"sinks": True, "gate": config.integer("v_head_dim")})
    stream, moe = Stream(decoder.hidden), latent_moe(config)
    hyper = HyperShape(streams=config.integer("hc_mult"), mixes=False)
    kinds = {}
    for kind, feed, indexer in dict.fromkeys(zip(order, feeds, indexers, strict=True)):
        attention = full.model_copy(update={"index_heads": 0}) if indexer else full
        mlp = moe if feed == "moe" else latent_mlp(config)
        kinds[kind] = _hyper_block(stream, hyper, attention, mlp)
    first, *rest = head(stream, decoder.vocab, decoder.embedding_tie)
    parts = Parts(
        kinds=kinds,
        order=order,
        semantics=sigmoid_semantics(config),
        moe=moe,
        boundary=hyper.streams * decoder.hidden,
        last=(*hyper_head(stream, hyper), first.model_copy(update={"inputs": ("collapse",)}), *rest),
    )
    return assemble(config, decoder, stream, parts)


def _hyper_block(
    stream: Stream, hyper: HyperShape, attention: LatentAttentionShape, mlp: MlpShape | MoeShape
) -> tuple[Operator, ...]:
    def feed(source: str) -> Branch:
        if isinstance(mlp, MoeShape):
            return moe_branch(mlp, stream.hidden, source)
        return mlp_branch(mlp, stream.hidden, source)

    return chain(
        hyper_sublayer(
            stream, hyper, "attn", lambda source: latent_attention_branch(attention, stream.hidden, source)
        ),
        hyper_sublayer(stream, hyper, "mlp", feed),
    )


def _feeds(config: Config, layers: int) -> tuple[str, ...]:
    """As listed; else dense in the first layer."""
    if config.listed("mlp_layer_types"):
        return config.texts("mlp_layer_types", layers, FEED_FORWARD_TYPES)
    config.raw("mlp_layer_types")
    return tuple("moe" if layer else "dense" for layer in range(layers))


def _indexers(config: Config, layers: int) -> tuple[str, ...]:
    if config.listed("indexer_types"):
        return config.texts("indexer_types", layers, INDEXERS)
    config.raw("indexer_types")
    return tuple("" if not i or (i - 1) % INDEXER_EVERY == 0 else "_shared" for i in range(layers))
