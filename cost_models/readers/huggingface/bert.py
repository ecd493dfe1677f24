"""BERT, RoBERTa, XLM-RoBERTa, CamemBERT, data2vec, ERNIE, Megatron-BERT: bidirectional, three tables, a head."""

from collections.abc import Callable, Mapping

from cost_models.operators import Embedding
from cost_models.operators.base import Operator
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
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Mapping[str, Default]] = {
    "bert": BERT_DEFAULTS,
    "roberta": {**BERT_DEFAULTS, **sizes(vocab_size=50265)},
    "xlm-roberta": BERT_DEFAULTS,
    "camembert": BERT_DEFAULTS,
    "data2vec-text": BERT_DEFAULTS,
    "ernie": {**BERT_DEFAULTS, **sizes(task_type_vocab_size=3, use_task_id=False)},
    "megatron-bert": {
        **BERT_DEFAULTS,
        **sizes(
            vocab_size=29056,
            hidden_size=1024,
            num_hidden_layers=24,
            num_attention_heads=16,
            intermediate_size=4096,
        ),
        **options(layer_norm_eps=1e-12),
    },
}
"""BertConfig and its descendants in transformers 5.24."""


def reader(family: str) -> Callable[[Mapping[str, object], str], ModelSpec]:
    """The reader of one of the families, trained on masked tokens."""
    return lambda raw, name: _read(Config(raw, DEFAULTS[family], family), name)


def _read(config: Config, name: str) -> ModelSpec:
    refuse_cross_attention(config)
    model = encoder_sizes(config, name)
    dropout = config.number("hidden_dropout_prob") > 0
    before = config.family == "megatron-bert"
    stream = Stream(model.hidden, norm="layer", placement="pre" if before else "post", dropout=dropout)
    causal = config.flag("is_decoder")
    parts = Parts(
        kinds={"dense": encoder_block(config, stream, model.heads, causal)},
        order=("dense",) * model.layers,
        first=_embedding(config, model, dropout),
        last=_head(config, stream, model),
        semantics={
            "norm": "layer",
            "norm_eps": config.number("layer_norm_eps"),
            "activation": config.text("hidden_act"),
            "position": "learned",
            "causal": causal,
        },
    )
    return assemble(config, model, stream, parts)


def _embedding(config: Config, model: Decoder, dropout: bool) -> tuple[Operator, ...]:
    """Tokens, positions, types (and ERNIE's tasks); a norm, which Megatron-BERT leaves to its blocks."""
    types = config.integer("type_vocab_size", low=0)
    if config.family == "ernie" and config.flag("use_task_id"):
        types += config.integer("task_type_vocab_size")
    table = Embedding(
        name="embedding",
        vocab_size=model.vocab,
        width=model.hidden,
        positions=model.max_seq_len,
        types=types,
        tie=model.embedding_tie,
        dropout=dropout,
    )
    return (table,) if config.family == "megatron-bert" else embedding_layer(table, model.hidden)


def _head(config: Config, stream: Stream, model: Decoder) -> tuple[Operator, ...]:
    head = MaskedHead(
        vocab=model.vocab,
        width=model.hidden,
        function=config.text("hidden_act"),
        tie=model.embedding_tie,
        second_bias=not model.tied,
    )
    before = (stream.normalise("final_norm", "x"),) if config.family == "megatron-bert" else ()
    return masked_head(model.hidden, head, before)


read_bert = reader("bert")
read_roberta = reader("roberta")
read_xlm_roberta = reader("xlm-roberta")
read_camembert = reader("camembert")
read_data2vec_text = reader("data2vec-text")
read_ernie = reader("ernie")
read_megatron_bert = reader("megatron-bert")
