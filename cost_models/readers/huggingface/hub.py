"""Decoders that only the code published with their weights builds: Qwen 1, ChatGLM, Yi's first form, MiniCPM,
DeepSeek-MoE and Ling (Bailing MoE)."""

from collections.abc import Mapping

from cost_models.readers.blocks.attention import AttentionShape
from cost_models.readers.blocks.feed_forward import MlpShape, MoeShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import (
    DECODER_DEFAULTS,
    Decoder,
    Parts,
    assemble,
    attention_shape,
    read_decoder,
)
from cost_models.readers.huggingface.config import Config, Default, Scalar, options, sizes
from cost_models.readers.huggingface.dense import rope_of, uniform
from cost_models.readers.huggingface.llama import LLAMA_DEFAULTS
from cost_models.readers.huggingface.routed import (
    Shapes,
    build_kinds,
    dense_then_routed,
    read_experts,
    semantics,
)
from cost_models.specs.model import ModelSpec

_ROUTED: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(num_key_value_heads=None, first_k_dense_replace=0, moe_layer_freq=1),
    **options(norm_topk_prob=False),
}
DEFAULTS: Mapping[str, Mapping[str, Default]] = {
    "Yi": {
        **LLAMA_DEFAULTS,
        **sizes(vocab_size=64000),
        **options(max_position_embeddings=4096, rms_norm_eps=1e-5, rope_theta=5e6),
    },
    "bailing_moe": {
        **_ROUTED,
        **sizes(use_qkv_bias=False, use_bias=False, num_shared_experts=0),
        **options(max_position_embeddings=16384, norm_topk_prob=True),
    },
    "chatglm": {
        **sizes(
            hidden_size=4096,
            num_layers=28,
            padded_vocab_size=65024,
            ffn_hidden_size=13696,
            kv_channels=128,
            num_attention_heads=32,
            multi_query_attention=False,
            multi_query_group_num=1,
            add_qkv_bias=False,
            add_bias_linear=False,
            post_layer_norm=True,
            rmsnorm=True,
            tie_word_embeddings=False,
        ),
        **options(
            seq_length=2048, layernorm_epsilon=1e-5, attention_dropout=0.0, rope_theta=10000.0, rope_ratio=1.0
        ),
    },
    "deepseek": {
        **_ROUTED,
        **sizes(
            vocab_size=102400,
            hidden_size=4096,
            intermediate_size=11008,
            moe_intermediate_size=1407,
            num_hidden_layers=30,
            num_attention_heads=32,
            n_shared_experts=None,
            n_routed_experts=None,
            attention_bias=False,
        ),
        **options(num_experts_per_tok=None, scoring_func="softmax"),
    },
    "minicpm": {
        **LLAMA_DEFAULTS,
        **sizes(tie_word_embeddings=True),
        **options(scale_emb=1.0, scale_depth=1.0, dim_model_base=1.0),
    },
    "qwen": {
        **sizes(
            vocab_size=151936,
            hidden_size=4096,
            num_hidden_layers=32,
            num_attention_heads=32,
            intermediate_size=22016,
            kv_channels=128,
            no_bias=True,
            tie_word_embeddings=False,
        ),
        **options(
            max_position_embeddings=8192,
            layer_norm_epsilon=1e-6,
            attn_dropout_prob=0.0,
            rotary_emb_base=10000.0,
        ),
    },
}
"""The configuration files beside the weights of Qwen/Qwen-7B, THUDM/chatglm3-6b, 01-ai/Yi-6B (first revision),
openbmb/MiniCPM-2B, deepseek-ai/deepseek-moe-16b-base and inclusionAI/Ling-lite."""


def read_yi(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type Yi, which is Llama under another name."""
    return _llama(Config(raw, DEFAULTS["Yi"], "Yi"), name)


def read_minicpm(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type minicpm: Llama with scaled embedding, branches and logits."""
    config = Config(raw, DEFAULTS["minicpm"], "minicpm")
    if config.listed("num_experts"):
        raise config.contradiction("num_experts", "num_experts is stated; MiniCPM with experts is not read")
    return _llama(config, name)


def _llama(config: Config, name: str) -> ModelSpec:
    decoder = read_decoder(config, name)
    mlp = MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_act"))
    found = {"norm_eps": config.number("rms_norm_eps"), "position": "rope", **rope_of(config)}
    attention = attention_shape(config, decoder)
    return uniform(decoder, Stream(decoder.hidden), attention, mlp).model(config, decoder, found)


def read_qwen(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type qwen: biases on queries, keys and values; intermediate_size is gate and up together."""
    config = Config(raw, DEFAULTS["qwen"], "qwen")
    if not config.flag("no_bias"):
        raise config.contradiction("no_bias", "no_bias is false, which no published model is; set it to true")
    heads, width = config.count("num_attention_heads"), config.integer("intermediate_size", low=2)
    if width % 2:
        raise config.contradiction(
            "intermediate_size", f"intermediate_size {width} is odd, but holds two halves; make it even"
        )
    decoder = Decoder(
        name=name,
        hidden=config.integer("hidden_size"),
        layers=config.count("num_hidden_layers"),
        vocab=config.integer("vocab_size"),
        heads=heads,
        kv_heads=heads,
        max_seq_len=config.integer("max_position_embeddings", "seq_length"),
        tied=config.flag("tie_word_embeddings"),
    )
    attention = AttentionShape(
        heads=heads,
        head_dim=config.integer("kv_channels"),
        qkv_bias=True,
        dropout=config.number("attn_dropout_prob") > 0,
    )
    found: dict[str, Scalar] = {
        "norm_eps": config.number("layer_norm_epsilon"),
        "position": "rope",
        **rope_of(config, "rotary_emb_base"),
    }
    blocks = uniform(decoder, Stream(decoder.hidden), attention, MlpShape(width=width // 2))
    return blocks.model(config, decoder, found)


def read_chatglm(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type chatglm: ChatGLM 2 and 3, GLM-4 in its first form; one fused gate and up matrix."""
    config = Config(raw, DEFAULTS["chatglm"], "chatglm")
    for key in ("rmsnorm", "post_layer_norm"):
        if not config.flag(key):
            raise config.contradiction(key, f"{key} is false, which no published model is; set it to true")
    heads = config.count("num_attention_heads")
    groups = config.count("multi_query_group_num") if config.flag("multi_query_attention") else heads
    if heads % groups:
        raise config.contradiction(
            "multi_query_group_num",
            f"multi_query_group_num {groups} does not divide num_attention_heads {heads}; use a divisor",
        )
    decoder = Decoder(
        name=name,
        hidden=config.integer("hidden_size"),
        layers=config.count("num_layers"),
        vocab=config.integer("padded_vocab_size"),
        heads=heads,
        kv_heads=groups,
        max_seq_len=config.integer("seq_length"),
        tied=config.flag("tie_word_embeddings"),
    )
    bias, dim = config.flag("add_bias_linear"), config.integer("kv_channels")
    attention = AttentionShape(
        heads=heads,
        kv_heads=groups,
        head_dim=dim,
        qkv_bias=bias or config.flag("add_qkv_bias"),
        out_bias=bias,
        rope_dim=max(1, dim // 2),
        dropout=config.number("attention_dropout") > 0,
    )
    found: dict[str, Scalar] = {
        "norm_eps": config.number("layernorm_epsilon"),
        "position": "rope",
        "rope_ratio": config.number("rope_ratio"),
        **rope_of(config),
    }
    mlp = MlpShape(width=config.integer("ffn_hidden_size"), bias=bias)
    return uniform(decoder, Stream(decoder.hidden), attention, mlp).model(config, decoder, found)


def read_deepseek(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type deepseek (DeepSeek-MoE, 2024): multi-head attention, a dense layer first, shared experts."""
    config = Config(raw, DEFAULTS["deepseek"], "deepseek")
    if config.raw("n_routed_experts") is None:
        raise config.contradiction(
            "n_routed_experts", "n_routed_experts is null; give it, or use llama for a dense one"
        )
    bias = config.flag("attention_bias")
    return _routed(config, name, "n_routed_experts", "n_shared_experts", (bias, bias))


def read_bailing_moe(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type bailing_moe (Ling): grouped-query attention, shared experts."""
    config = Config(raw, DEFAULTS["bailing_moe"], "bailing_moe")
    biases = (config.flag("use_qkv_bias"), config.flag("use_bias"))
    return _routed(config, name, "num_experts", "num_shared_experts", biases)


def _routed(
    config: Config, name: str, experts_key: str, shared_key: str, biases: tuple[bool, bool]
) -> ModelSpec:
    decoder = read_decoder(config, name)
    if config.count("moe_layer_freq") != 1:
        raise config.contradiction(
            "moe_layer_freq", "moe_layer_freq is not 1, which no published model is; drop it"
        )
    experts, top_k = read_experts(config, (experts_key,))
    width = config.integer("moe_intermediate_size")
    moe = MoeShape(
        experts=experts,
        top_k=top_k,
        width=width,
        function=config.text("hidden_act"),
        shared_width=(config.optional_integer(shared_key, low=0) or 0) * width,
    )
    attention = attention_shape(config, decoder, qkv_bias=biases[0], out_bias=biases[1])
    order = dense_then_routed(config, decoder.layers)
    shapes: dict[str, Shapes] = {"moe": (attention, moe)}
    if "dense" in order:
        dense = MlpShape(width=config.integer("intermediate_size"), function=config.text("hidden_act"))
        shapes["dense"] = (attention, dense)
    parts = Parts(
        kinds=build_kinds(Stream(decoder.hidden), shapes),
        order=order,
        semantics=semantics(config, router_scoring="softmax"),
        moe=moe,
    )
    return assemble(config, decoder, Stream(decoder.hidden), parts)
