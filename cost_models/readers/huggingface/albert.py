"""ELECTRA (2020) and ALBERT (2019): token tables narrower than the stream; ALBERT's layers share their weights."""

from collections.abc import Mapping

from cost_models.operators import Embedding
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.common import Decoder, Parts, assemble, refuse_cross_attention
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.encoder import (
    BERT_DEFAULTS,
    MaskedHead,
    embedding_layer,
    encoder_block,
    encoder_sizes,
    masked_head,
)
from cost_models.specs.model import Layer, ModelSpec, Role

ELECTRA_DEFAULTS: Mapping[str, Default] = {
    **BERT_DEFAULTS,
    **sizes(embedding_size=128, hidden_size=256, num_attention_heads=4, intermediate_size=1024),
}
"""ElectraConfig of transformers 5.24."""

ALBERT_DEFAULTS: Mapping[str, Default] = {
    **BERT_DEFAULTS,
    **sizes(
        vocab_size=30000,
        embedding_size=128,
        hidden_size=4096,
        num_attention_heads=64,
        intermediate_size=16384,
        num_hidden_groups=1,
        inner_group_num=1,
    ),
    **options(hidden_act="gelu_new", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
}
"""AlbertConfig of transformers 5.24."""

ELECTRA_HEAD_FUNCTION = "gelu"
"""The generator's head always takes GELU."""


def read_electra(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type electra: the generator, trained on masked tokens."""
    config = Config(raw, ELECTRA_DEFAULTS, "electra")
    refuse_cross_attention(config)
    return _read(config, name, ELECTRA_HEAD_FUNCTION, causal=config.flag("is_decoder"))


def read_albert(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type albert: groups of layers, each run many times with one set of weights."""
    config = Config(raw, ALBERT_DEFAULTS, "albert")
    model = _read(config, name, config.text("hidden_act"), causal=False)
    blocks = _shared_layers(config, config.count("num_hidden_layers"))
    ends = [layer for layer in model.layers if layer.role is not Role.BLOCK]
    return model.model_copy(update={"layers": (ends[0], *blocks, ends[1]), "assumed": config.assumed})


def _shared_layers(config: Config, layers: int) -> tuple[Layer, ...]:
    """Runs of layers by the group whose weights they use; a group of several layers runs whole each time."""
    groups, inner = config.count("num_hidden_groups"), config.count("inner_group_num")
    if groups > layers:
        raise config.contradiction(
            "num_hidden_groups",
            f"num_hidden_groups {groups} is more than num_hidden_layers {layers}; use at most {layers}",
        )
    order = [
        f"group{int(layer / (layers / groups))}_layer{each}"
        for layer in range(layers)
        for each in range(inner)
    ]
    found: list[Layer] = []
    for name in order:
        if found and found[-1].shares == name:
            found[-1] = found[-1].model_copy(update={"count": found[-1].count + 1})
        else:
            found.append(Layer(kind="dense", shares=name))
    return tuple(found)


def _read(config: Config, name: str, function: str, causal: bool) -> ModelSpec:
    model = encoder_sizes(config, name)
    narrow = config.integer("embedding_size")
    dropout = config.number("hidden_dropout_prob") > 0
    stream = Stream(model.hidden, norm="layer", placement="post", dropout=dropout)
    table = Embedding(
        name="embedding",
        vocab_size=model.vocab,
        width=narrow,
        positions=model.max_seq_len,
        types=config.integer("type_vocab_size", low=0),
        tie=model.embedding_tie,
        dropout=dropout,
    )
    parts = Parts(
        kinds={"dense": encoder_block(config, stream, model.heads, causal)},
        order=("dense",) * model.layers,
        first=embedding_layer(table, model.hidden, always=config.family == "albert"),
        last=masked_head(model.hidden, _head(config, model, narrow, function)),
        semantics={
            "norm": "layer",
            "norm_eps": config.number("layer_norm_eps"),
            "activation": config.text("hidden_act"),
            "position": "learned",
            "causal": causal,
        },
    )
    return assemble(config, model, stream, parts)


def _head(config: Config, model: Decoder, width: int, function: str) -> MaskedHead:
    return MaskedHead(
        vocab=model.vocab,
        width=width,
        function=function,
        tie=model.embedding_tie,
        second_bias=config.family == "albert" and not model.tied,
    )
