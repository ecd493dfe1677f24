"""Relatives of Llama: Arcee, CWM, HyperCLOVA X, IQuest Coder, Jais 2 and Seed-OSS."""

from collections.abc import Mapping

from cost_models.readers.blocks.feed_forward import MlpShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import attention_shape, read_decoder
from cost_models.readers.huggingface.config import Config, Default, Scalar, options, sizes
from cost_models.readers.huggingface.dense import attention_order, mixed, rope_of, uniform, window_of
from cost_models.readers.huggingface.llama import LLAMA_DEFAULTS
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Mapping[str, Default]] = {
    "arcee": {
        **LLAMA_DEFAULTS,
        **sizes(hidden_size=2560, intermediate_size=18432),
        **options(hidden_act="relu2", max_position_embeddings=4096, rms_norm_eps=1e-5),
    },
    "cwm": {
        **LLAMA_DEFAULTS,
        **sizes(
            vocab_size=128256,
            hidden_size=6144,
            intermediate_size=21504,
            num_hidden_layers=64,
            num_attention_heads=48,
            num_key_value_heads=8,
            head_dim=128,
        ),
        **options(max_position_embeddings=131072, rms_norm_eps=1e-5, rope_theta=1e6, sliding_window=8192),
    },
    "hyperclovax": {
        **LLAMA_DEFAULTS,
        **sizes(use_post_norm=True),
        **options(embedding_multiplier=1.0, logits_scaling=1.0, residual_multiplier=1.0),
    },
    "iquestcoder": {
        **LLAMA_DEFAULTS,
        **sizes(
            vocab_size=76800,
            hidden_size=5120,
            intermediate_size=27648,
            num_hidden_layers=80,
            num_attention_heads=40,
            num_key_value_heads=8,
            head_dim=128,
        ),
        **options(max_position_embeddings=131072, rms_norm_eps=1e-5),
    },
    "jais2": {
        **LLAMA_DEFAULTS,
        **sizes(
            vocab_size=150272,
            hidden_size=3328,
            intermediate_size=26624,
            num_attention_heads=26,
            attention_bias=True,
            mlp_bias=True,
        ),
        **options(hidden_act="relu2", max_position_embeddings=8192, layer_norm_eps=1e-5),
    },
    "seed_oss": {
        **LLAMA_DEFAULTS,
        **sizes(
            vocab_size=155136,
            intermediate_size=27648,
            num_hidden_layers=64,
            num_attention_heads=80,
            num_key_value_heads=8,
            head_dim=128,
            attention_bias=True,
            attention_out_bias=False,
        ),
        **options(max_position_embeddings=524288, attention_dropout=0.1, residual_dropout=0.1),
    },
}
"""ArceeConfig, CwmConfig, HyperCLOVAXConfig, IQuestCoderConfig, Jais2Config and SeedOssConfig of
transformers 5.24."""

MULTIPLIERS = ("embedding_multiplier", "logits_scaling", "residual_multiplier")
"""Factors of HyperCLOVA X that scale the embedded tokens, the logits and each branch."""

IQUEST_HEAD_DIM = 128
"""Head size of IQuestCoderConfig's defaults, which leave open whether it is derived."""

CWM_FULL_EVERY = 4
"""CWM's full layers when layer_types is absent: the first and every fourth one after it."""


def read_arcee(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type arcee: a feed-forward of two matrices with squared ReLU."""
    return _read(Config(raw, DEFAULTS["arcee"], "arcee"), name, gated=False)


def read_hyperclovax(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type hyperclovax: norms after the branches as well, unless use_post_norm is false."""
    config = Config(raw, DEFAULTS["hyperclovax"], "hyperclovax")
    return _read(config, name, sandwich=config.flag("use_post_norm"))


def read_iquestcoder(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type iquestcoder: Llama with other sizes."""
    config = Config(raw, DEFAULTS["iquestcoder"], "iquestcoder")
    heads, hidden = config.count("num_attention_heads"), config.integer("hidden_size")
    if not config.states("head_dim") and hidden != IQUEST_HEAD_DIM * heads:
        raise config.contradiction(
            "head_dim",
            f"{heads} heads of {IQUEST_HEAD_DIM} do not make hidden_size {hidden} and there is no head_dim; add it",
        )
    return _read(config, name)


def read_jais2(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type jais2: LayerNorms, biases, a feed-forward of two matrices with squared ReLU."""
    return _read(Config(raw, DEFAULTS["jais2"], "jais2"), name, gated=False)


def read_seed_oss(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type seed_oss: biases on queries, keys and values only, dropout by default."""
    return _read(Config(raw, DEFAULTS["seed_oss"], "seed_oss"), name)


def read_cwm(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type cwm: windows three layers of four, no biases in attention."""
    config = Config(raw, DEFAULTS["cwm"], "cwm")
    decoder = read_decoder(config, name)
    full = attention_shape(config, decoder)
    order = attention_order(config, decoder.layers, lambda layer: bool(layer % CWM_FULL_EVERY))
    if not config.listed("layer_types"):
        config.note("layer_types", f"every {CWM_FULL_EVERY}th full from the first", changes_parameters=False)
    sliding = full.model_copy(update={"window": window_of(config)})
    blocks = mixed(Stream(decoder.hidden), full, sliding, order, _mlp(config, gated=True))
    return blocks.model(config, decoder, _semantics(config))


def _read(config: Config, name: str, *, gated: bool = True, sandwich: bool = False) -> ModelSpec:
    decoder = read_decoder(config, name)
    bias = config.flag("attention_bias")
    out_bias = config.flag("attention_out_bias") if config.family == "seed_oss" else bias
    stream = Stream(
        decoder.hidden,
        norm="layer" if config.family == "jais2" else "rms",
        placement="sandwich" if sandwich else "pre",
        dropout=config.family == "seed_oss" and config.number("residual_dropout") > 0,
    )
    attention = attention_shape(config, decoder, qkv_bias=bias, out_bias=out_bias)
    return uniform(decoder, stream, attention, _mlp(config, gated)).model(config, decoder, _semantics(config))


def _mlp(config: Config, gated: bool) -> MlpShape:
    return MlpShape(
        width=config.integer("intermediate_size"),
        gated=gated,
        function=config.text("hidden_act"),
        bias=config.flag("mlp_bias"),
    )


def _semantics(config: Config) -> dict[str, Scalar]:
    norm_eps = config.number("layer_norm_eps" if config.family == "jais2" else "rms_norm_eps")
    found: dict[str, Scalar] = {"norm_eps": norm_eps, "position": "rope", **rope_of(config)}
    if config.family == "hyperclovax":
        found |= {key: config.number(key) for key in MULTIPLIERS}
    return found
