"""JetMoE (Shen et al. 2024): experts hold the queries' and the output's matrices of attention as well."""

from collections.abc import Mapping

from cost_models.operators import Attention, Combine, Dispatch, GroupedLinear, Linear, Rope, Router
from cost_models.operators.base import Operator
from cost_models.operators.linear import Part
from cost_models.readers.blocks.feed_forward import MoeShape, feed_forward_sublayer
from cost_models.readers.blocks.stream import Branch, Stream, chain, scalars, sublayer
from cost_models.readers.huggingface.common import Decoder, Parts, assemble, check_experts, rope_semantics
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **sizes(
        vocab_size=32000,
        hidden_size=2048,
        num_hidden_layers=12,
        num_key_value_heads=16,
        kv_channels=128,
        intermediate_size=5632,
        num_local_experts=8,
        num_experts_per_tok=2,
        tie_word_embeddings=True,
    ),
    **options(
        activation_function="silu",
        max_position_embeddings=4096,
        rms_norm_eps=1e-6,
        rope_theta=10000.0,
        attention_dropout=0.0,
    ),
}
"""JetMoeConfig of transformers 5.24; heads are key/value heads times experts a token."""


def read_jetmoe(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type jetmoe."""
    config = Config(raw, DEFAULTS, "jetmoe")
    keys, top_k = config.count("num_key_value_heads"), config.count("num_experts_per_tok")
    experts = config.count("num_local_experts", "num_experts")
    check_experts(config, experts, top_k)
    decoder = Decoder(
        name=name,
        hidden=config.integer("hidden_size"),
        layers=config.count("num_hidden_layers"),
        vocab=config.integer("vocab_size"),
        heads=keys * top_k,
        kv_heads=keys,
        max_seq_len=config.integer("max_position_embeddings"),
        tied=config.flag("tie_word_embeddings"),
    )
    stream = Stream(decoder.hidden)
    moe = MoeShape(
        experts=experts,
        top_k=top_k,
        width=config.integer("intermediate_size"),
        function=config.text("activation_function"),
    )
    attended = _attention(config, decoder, experts, top_k)
    block = chain(
        lambda source: sublayer(stream, "attn", source, lambda inside: attended),
        feed_forward_sublayer(stream, moe),
    )
    biases = scalars("expert_biases", 2 * decoder.hidden)  # one for the sum of each set of experts
    parts = Parts(
        kinds={"moe": (*block, biases)},
        order=("moe",) * decoder.layers,
        semantics={
            "norm": "rms",
            "norm_eps": config.number("rms_norm_eps"),
            "activation": moe.function,
            "position": "rope",
            "router_scoring": "softmax_of_top_k",
            **rope_semantics(config),
        },
        moe=moe,
    )
    return assemble(config, decoder, stream, parts)


def _attention(config: Config, decoder: Decoder, experts: int, top_k: int) -> Branch:
    """Each expert makes one set of queries, all sets attend to the same keys, the same experts make the output."""
    hidden, keys, dim = decoder.hidden, decoder.kv_heads, config.integer("kv_channels", "head_dim")
    width, source = keys * dim, "attn_norm"
    parts = tuple(Part(name=part, features=width, max_shards=keys) for part in ("k", "v"))

    def grouped(name: str, read: str, sizes: tuple[int, int], row: bool) -> GroupedLinear:
        return GroupedLinear(
            name=name,
            inputs=(read,),
            experts=experts,
            top_k=top_k,
            in_features=sizes[0],
            out_features=sizes[1],
            split="row" if row else "column",
        )

    found: tuple[Operator, ...] = (
        Router(name="attn_router", inputs=(source,), hidden=hidden, experts=experts, top_k=top_k),
        Dispatch(name="attn_dispatch", inputs=(source,), hidden=hidden, top_k=top_k),
        grouped("expert_q", "attn_dispatch", (hidden, width), row=False),
        Linear(name="kv", inputs=(source,), in_features=hidden, parts=parts),
        Rope(name="rope", inputs=("expert_q", "kv"), width=(decoder.heads + keys) * dim),
        Attention(
            name="core_attention",
            inputs=("q", "k", "v"),
            heads=decoder.heads,
            kv_heads=keys,
            qk_dim=dim,
            v_dim=dim,
            dropout=config.number("attention_dropout") > 0,
        ),
        grouped("expert_o", "core_attention", (width, hidden), row=True),
        Combine(name="attn_combine", inputs=("expert_o",), hidden=hidden, top_k=top_k),
    )
    return Branch(found, ("attn_combine",))
