"""More dense decoders: Apertus, Granite with windows, InternLM 1, InternLM 3, nanochat and Persimmon."""

from collections.abc import Mapping

from cost_models.readers.blocks.attention import attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, feed_forward_sublayer
from cost_models.readers.blocks.stream import Stream, chain, embedding, scalars
from cost_models.readers.huggingface.common import Parts, assemble, attention_shape, read_decoder
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.dense import (
    Dense,
    agreed,
    multi_head,
    rope_of,
    rotated_features,
    uniform,
)
from cost_models.readers.huggingface.granite import MULTIPLIERS
from cost_models.readers.huggingface.granitemoe import attended_layers
from cost_models.readers.huggingface.llama import LLAMA_DEFAULTS
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Mapping[str, Default]] = {
    "apertus": {
        **LLAMA_DEFAULTS,
        **sizes(vocab_size=131072, intermediate_size=14336, hidden_act="xielu"),
        **options(max_position_embeddings=65536, rms_norm_eps=1e-5, rope_theta=12e6),
    },
    "granite_swa": {
        **LLAMA_DEFAULTS,
        **sizes(
            vocab_size=100352,
            hidden_size=2560,
            intermediate_size=8192,
            num_hidden_layers=24,
            num_attention_heads=20,
            num_key_value_heads=4,
            tie_word_embeddings=True,
        ),
        **options(
            max_position_embeddings=8192,
            rms_norm_eps=1e-5,
            sliding_window=128,
            layer_types=None,
            **dict.fromkeys(MULTIPLIERS, 1.0),
        ),
    },
    "internlm": {**LLAMA_DEFAULTS, **sizes(vocab_size=103168, bias=True)},
    "internlm3": {
        **LLAMA_DEFAULTS,
        **sizes(
            vocab_size=128512,
            intermediate_size=10240,
            num_hidden_layers=48,
            num_key_value_heads=2,
            head_dim=128,
            bias=False,
            qkv_bias=False,
        ),
        **options(max_position_embeddings=32768, rms_norm_eps=1e-5),
    },
    "nanochat": {
        **LLAMA_DEFAULTS,
        **sizes(
            vocab_size=50304,
            hidden_size=768,
            intermediate_size=8192,
            num_hidden_layers=12,
            num_attention_heads=6,
        ),
        **options(hidden_act="relu2", final_logit_softcapping=15.0),
    },
    "persimmon": {
        **LLAMA_DEFAULTS,
        **sizes(
            vocab_size=262144,
            intermediate_size=16384,
            num_hidden_layers=36,
            num_attention_heads=64,
            qk_layernorm=True,
        ),
        **options(
            hidden_act="relu2",
            max_position_embeddings=16384,
            layer_norm_eps=1e-5,
            hidden_dropout=0.0,
            partial_rotary_factor=0.5,
        ),
    },
}
"""ApertusConfig, GraniteSWAConfig, InternLM3Config, NanoChatConfig and PersimmonConfig of transformers 5.24; the
configuration class published with the weights of InternLM."""

BIASES: Mapping[str, str] = {"attention_bias": "qkv_bias", "mlp_bias": "bias"}
"""The library's keys of InternLM3's biases, and those published with the weights."""

XIELU_SLOPES = 2
"""Learned numbers of one xIELU activation (Huang and Schlag 2024, section 4)."""


def read_apertus(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type apertus: q/k norms, a feed-forward of two matrices with an activation that is learned."""
    config = Config(raw, DEFAULTS["apertus"], "apertus")
    decoder = read_decoder(config, name)
    stream, bias = Stream(decoder.hidden), config.flag("attention_bias")
    mlp = MlpShape(width=config.integer("intermediate_size"), gated=False, function=config.text("hidden_act"))
    attention = attention_shape(config, decoder, qkv_bias=bias, out_bias=bias, qk_norm=True)
    block = chain(attention_sublayer(stream, attention), feed_forward_sublayer(stream, mlp))
    if mlp.function == "xielu":
        block = (*block[:-1], scalars("act_slopes", XIELU_SLOPES), block[-1])
    semantics = {
        "norm": "rms",
        "norm_eps": config.number("rms_norm_eps"),
        "activation": mlp.function,
        "position": "rope",
        **rope_of(config),
    }
    parts = Parts(kinds={"dense": block}, order=("dense",) * decoder.layers, semantics=semantics)
    return assemble(config, decoder, stream, parts)


def read_granite_swa(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type granite_swa: Granite with windows but in every fourth layer, and sinks in all."""
    config = Config(raw, DEFAULTS["granite_swa"], "granite_swa")
    decoder = read_decoder(config, name)
    bias, window = config.flag("attention_bias"), config.optional_integer("sliding_window") or 0
    order = attended_layers(config, decoder.layers)
    attention = {
        word: attention_shape(
            config,
            decoder,
            qkv_bias=bias,
            out_bias=bias,
            sinks=True,
            rope=not word.endswith("unrotated"),
            window=window if word.startswith("sliding") else 0,
        )
        for word in dict.fromkeys(order)
    }
    mlp = MlpShape(
        width=config.integer("intermediate_size"),
        function=config.text("hidden_act"),
        bias=config.flag("mlp_bias"),
    )
    semantics = {
        "norm_eps": config.number("rms_norm_eps"),
        "position": "rope",
        **{key: config.number(key) for key in MULTIPLIERS},
        **rope_of(config),
    }
    return Dense(Stream(decoder.hidden), attention, order, mlp).model(config, decoder, semantics)


def read_internlm(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type internlm: Llama with biases on the four matrices of attention."""
    return _llama(Config(raw, DEFAULTS["internlm"], "internlm"), name)


def read_internlm3(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type internlm3: Llama with grouped heads, biases everywhere or nowhere."""
    renamed = {new: raw[old] for old, new in BIASES.items() if old in raw}
    config = Config({**renamed, **raw}, DEFAULTS["internlm3"], "internlm3")
    for old, new in BIASES.items():
        agreed(config, new, old)
    if config.flag("bias") != config.flag("qkv_bias"):
        raise config.contradiction(
            "qkv_bias", f"qkv_bias is {config.flag('qkv_bias')} and bias is not, which the class cannot build"
        )
    return _llama(config, name)


def _llama(config: Config, name: str) -> ModelSpec:
    decoder = read_decoder(config, name)
    bias, third = config.flag("bias"), config.family == "internlm3"
    attention = attention_shape(
        config, decoder, qkv_bias=config.flag("qkv_bias") if third else bias, out_bias=bias
    )
    mlp = MlpShape(
        width=config.integer("intermediate_size"), function=config.text("hidden_act"), bias=third and bias
    )
    semantics = {"norm_eps": config.number("rms_norm_eps"), "position": "rope", **rope_of(config)}
    return uniform(decoder, Stream(decoder.hidden), attention, mlp).model(config, decoder, semantics)


def read_nanochat(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type nanochat: no norm has weights, squared ReLU, soft-capped logits."""
    config = Config(raw, DEFAULTS["nanochat"], "nanochat")
    decoder = read_decoder(config, name)
    bias, cap = config.flag("attention_bias"), config.raw("final_logit_softcapping")
    attention = attention_shape(
        config, decoder, qkv_bias=bias, out_bias=bias, qk_norm=True, qk_norm_weight=False
    )
    mlp = MlpShape(width=config.integer("intermediate_size"), gated=False, function=config.text("hidden_act"))
    semantics = {
        "norm_eps": config.number("rms_norm_eps"),
        "position": "rope",
        "logit_soft_cap": None if cap is None else config.number("final_logit_softcapping"),
        **rope_of(config),
    }
    stream = Stream(decoder.hidden, norm_weight=False)
    table = embedding(decoder.vocab, decoder.hidden, decoder.embedding_tie)
    first = (table, stream.normalise("embedding_norm", "embedding"))
    model = uniform(decoder, stream, attention, mlp)
    return model.model(config, decoder, semantics, first=first)


def read_persimmon(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type persimmon: LayerNorms, biases, q/k norms by head, half of a head rotated, squared ReLU."""
    config = Config(raw, DEFAULTS["persimmon"], "persimmon")
    decoder = read_decoder(config, name)
    size = decoder.hidden // decoder.heads
    attention = multi_head(
        config,
        decoder,
        "attention_dropout",
        qkv_bias=True,
        out_bias=True,
        qk_norm=config.flag("qk_layernorm"),
        qk_norm_kind="layer",
        qk_norm_bias=True,
        rope_dim=rotated_features(config, size, "partial_rotary_factor"),
    )
    mlp = MlpShape(
        width=config.integer("intermediate_size"),
        gated=False,
        function=config.text("hidden_act"),
        bias=True,
    )
    semantics = {"norm_eps": config.number("layer_norm_eps"), "position": "rope", **rope_of(config)}
    stream = Stream(decoder.hidden, norm="layer", dropout=config.number("hidden_dropout") > 0)
    return uniform(decoder, stream, attention, mlp).model(config, decoder, semantics)
