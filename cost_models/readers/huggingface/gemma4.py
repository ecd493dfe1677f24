"""Gemma 4 text: full layers with heads of their own size, shared keys and values, inputs by layer, experts."""

from collections.abc import Mapping, Sequence

from cost_models.operators.base import Operator
from cost_models.readers.blocks.feed_forward import MlpShape, MoeShape
from cost_models.readers.blocks.stream import Stream, embedding
from cost_models.readers.huggingface.common import (
    ATTENTION_TYPES,
    DECODER_DEFAULTS,
    Decoder,
    Parts,
    assemble,
    read_decoder,
)
from cost_models.readers.huggingface.config import Config, Default, Scalar, options, sizes
from cost_models.readers.huggingface.gemma4_blocks import Gemma4Attention, block, layer_inputs
from cost_models.readers.huggingface.routed import read_experts
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        per_layer_config=None,
        vocab_size=262144,
        hidden_size=2304,
        intermediate_size=9216,
        num_hidden_layers=30,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=256,
        global_head_dim=512,
        num_global_key_value_heads=None,
        tie_word_embeddings=True,
        attention_bias=False,
        vocab_size_per_layer_input=262144,
        hidden_size_per_layer_input=256,
        attention_k_eq_v=False,
        num_kv_shared_layers=0,
        enable_moe_block=False,
        use_double_wide_mlp=False,
        num_experts=None,
        moe_intermediate_size=None,
    ),
    **options(
        hidden_activation="gelu_pytorch_tanh",
        max_position_embeddings=131072,
        sliding_window=512,
        final_logit_softcapping=None,
        use_bidirectional_attention=None,
        top_k_experts=None,
    ),
}
"""Gemma4TextConfig of transformers 5.24; global_head_dim and num_global_key_value_heads of the full layers."""

FULL_EVERY = 6
"""Without layer_types every so many layers attend to all positions (Gemma4TextConfig of transformers 5.24)."""

SHARED = "_shared_kv"
"""Kinds of this name read the keys and values of the last layer of their type that has its own."""

KEPT = "_kept_kv"
"""Kinds of this name are that layer, whose keys and values later layers and draft models may read."""


UNIFIED: Mapping[str, Default] = {
    **DEFAULTS,
    **sizes(hidden_size_per_layer_input=0),
    **options(max_position_embeddings=262144, sliding_window=1024, use_bidirectional_attention="vision"),
}
"""Gemma4UnifiedTextConfig of transformers 5.24, whose class knows neither inputs by layer nor experts."""


def read_gemma4_unified_text(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type gemma4_unified_text."""
    own = {
        key: value
        for key, value in raw.items()
        if key not in ("enable_moe_block", "hidden_size_per_layer_input")
    }
    return _read(Config(own, UNIFIED, "gemma4_unified_text"), name)


def read_gemma4_text(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type gemma4_text."""
    return _read(Config(raw, DEFAULTS, "gemma4_text"), name)


def _read(config: Config, name: str) -> ModelSpec:
    decoder = read_decoder(config, name)
    stream = Stream(decoder.hidden, placement="sandwich")
    types = _types(config, decoder.layers)
    own = _own(config, types)
    kept = kept_layers(types[:own])
    moe = _moe(config)
    prefix = "moe_" if moe else ""
    order = tuple(
        prefix + each + (KEPT if i in kept else "" if i < own else SHARED) for i, each in enumerate(types)
    )
    inputs = config.optional_integer("hidden_size_per_layer_input", low=0) or 0
    kinds = {}
    for kind in dict.fromkeys(order):
        index = order.index(kind)
        attention = _attention(config, decoder, types, index)
        mlp = _mlp(config, wide=index >= own)
        kinds[kind] = block(stream, attention, mlp, moe, inputs)
    soft_cap = config.raw("final_logit_softcapping") is not None
    parts = Parts(
        kinds=kinds,
        order=order,
        semantics=_semantics(config),
        moe=moe,
        soft_cap=soft_cap,
        first=_first(config, decoder, stream, inputs),
    )
    model = assemble(config, decoder, stream, parts)
    fewest = min(_attention(config, decoder, types, order.index(kind)).kv_heads for kind in kinds)
    return model.model_copy(update={"num_kv_heads": fewest})


def _first(config: Config, decoder: Decoder, stream: Stream, inputs: int) -> tuple[Operator, ...]:
    """The token table; with inputs by layer a second table for all layers and a projection of the first."""
    table = embedding(decoder.vocab, decoder.hidden, decoder.embedding_tie)
    if not inputs:
        return (table,)
    vocab = config.integer("vocab_size_per_layer_input")
    return (table, *layer_inputs(stream, vocab, decoder.layers, inputs))


def _types(config: Config, layers: int) -> tuple[str, ...]:
    """`sliding` or `full` by layer; the class makes the last layer full whatever is listed."""
    if config.listed("layer_types"):
        found = config.texts("layer_types", layers, ATTENTION_TYPES)
    else:
        found = tuple("full" if (i + 1) % FULL_EVERY == 0 else "sliding" for i in range(layers))
        config.note("layer_types", f"every {FULL_EVERY}th full", changes_parameters=True)
    if found[-1] != "full":
        config.note("layer_types", "the last layer full_attention", changes_parameters=True)
    return (*found[:-1], "full")


def kept_layers(own: Sequence[str]) -> frozenset[int]:
    """The last layer of each type among those with keys and values of their own."""
    return frozenset({kind: i for i, kind in enumerate(own)}.values())


def _own(config: Config, types: tuple[str, ...]) -> int:
    """Number of layers with keys and values of their own; each type that shares must occur among them."""
    shared = config.count("num_kv_shared_layers", low=0)
    own = len(types) - shared
    if own < 1 or set(types[own:]) - set(types[:own]):
        raise config.contradiction(
            "num_kv_shared_layers",
            f"num_kv_shared_layers {shared} of {len(types)} layers leave no layer of each type to share from; "
            "use fewer",
        )
    return own


def _attention(config: Config, decoder: Decoder, types: tuple[str, ...], index: int) -> Gemma4Attention:
    full = types[index] == "full"
    k_eq_v = config.flag("attention_k_eq_v") and full
    dim, kv_heads = _heads(config, decoder, types, types[index])
    if decoder.heads % kv_heads:
        raise config.contradiction(
            "num_global_key_value_heads",
            f"num_attention_heads {decoder.heads} is not a multiple of the {kv_heads} key/value heads of full "
            "layers; use a divisor",
        )
    everywhere = config.raw("use_bidirectional_attention") == "all"
    window = 0 if full else config.integer("sliding_window")
    return Gemma4Attention(
        heads=decoder.heads,
        kv_heads=kv_heads,
        head_dim=dim,
        window=window // 2 + 1 if everywhere and window else window,
        causal=not everywhere,
        bias=config.flag("attention_bias"),
        dropout=config.number("attention_dropout") > 0,
        own_keys=index < _own(config, types),
        own_values=not k_eq_v,
    )


def _heads(config: Config, decoder: Decoder, types: tuple[str, ...], kind: str) -> tuple[int, int]:
    """Head size and key/value heads of one type: from per_layer_config where it is stated."""
    base = (config.integer("head_dim"), decoder.kv_heads)
    if config.raw("per_layer_config") is not None:
        return _listed_heads(config, types, kind, base)
    if config.states("per_layer_config"):
        raise config.contradiction(
            "per_layer_config",
            "per_layer_config is null, which makes full layers like the others; leave it out or give their sizes",
        )
    if kind != "full":
        return base
    stated = (
        config.optional_integer("num_global_key_value_heads") if config.flag("attention_k_eq_v") else None
    )
    return config.integer("global_head_dim"), stated or decoder.kv_heads


def _listed_heads(
    config: Config, types: tuple[str, ...], kind: str, base: tuple[int, int]
) -> tuple[int, int]:
    """per_layer_config: head_dim and num_key_value_heads by layer number, alike for all layers of a type."""
    stated = config.raw("per_layer_config")
    wrong = "per_layer_config gives no sizes by layer number that agree within a type; state global_head_dim"
    if not isinstance(stated, Mapping) or not all(
        isinstance(each, str) and each.isdecimal() and isinstance(inner, Mapping)
        for each, inner in stated.items()
    ):
        raise config.contradiction("per_layer_config", wrong)
    by_layer = {int(key): inner for key, inner in stated.items()}
    found = set()
    for index, each in enumerate(types):
        if each == kind:
            inner = by_layer.get(index, {})
            where = f"per_layer_config/{index:02d}"
            layer = Config({f"{where}/{key}": value for key, value in inner.items()}, {}, config.family)
            dim, keys = f"{where}/head_dim", f"{where}/num_key_value_heads"
            found.add(
                (
                    layer.integer(dim) if layer.listed(dim) else base[0],
                    layer.count(keys) if layer.listed(keys) else base[1],
                )
            )
    if len(found) != 1:
        raise config.contradiction("per_layer_config", wrong)
    return found.pop()


def _mlp(config: Config, wide: bool) -> MlpShape:
    """The dense feed-forward, twice as wide in layers that share keys and values where the config says so."""
    factor = 2 if wide and config.flag("use_double_wide_mlp") else 1
    width = config.integer("intermediate_size") * factor
    return MlpShape(width=width, function=config.text("hidden_activation"))


def _moe(config: Config) -> MoeShape | None:
    if not config.flag("enable_moe_block"):
        return None
    experts, top_k = read_experts(config, ("num_experts",), "top_k_experts")
    return MoeShape(
        experts=experts,
        top_k=top_k,
        width=config.integer("moe_intermediate_size"),
        function=config.text("hidden_activation"),
        router_bias=True,  # stands for per_expert_scale, of the same size
    )


def _semantics(config: Config) -> dict[str, Scalar]:
    found: dict[str, Scalar] = {
        "norm": "rms",
        "norm_eps": config.number("rms_norm_eps"),
        "activation": config.text("hidden_activation"),
        "position": "rope",
        "embedding_scale": "sqrt(hidden_size)",
        "attention_scale": 1.0,
        **config.flat("rope_parameters"),
    }
    if not config.states("rope_parameters"):
        found |= {"rope_theta": 1e6, "rope_theta_sliding": 1e4}
        config.note("rope_parameters", "theta 1e6 (sliding 1e4)", changes_parameters=False)
    if config.raw("final_logit_softcapping") is not None:
        found["logit_soft_cap"] = config.number("final_logit_softcapping")
    return found
