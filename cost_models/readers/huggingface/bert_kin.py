"""More encoders trained on masked tokens: RoBERTa-PreLayerNorm, XLM-R XL, RoFormer, RemBERT, MPNet, BigBird; and the
decoder of BertGeneration."""

from collections.abc import Callable, Mapping

from cost_models.operators import CrossEntropy, Embedding, IdleWeights, LmHead, PositionTable
from cost_models.operators.base import Operator
from cost_models.readers.blocks.attention import AttentionShape, attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, feed_forward_sublayer
from cost_models.readers.blocks.stream import Stream, chain
from cost_models.readers.huggingface.common import Decoder, Parts, assemble, refuse_cross_attention
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.encoder import (
    BERT_DEFAULTS,
    MaskedHead,
    embedding_layer,
    encoder_sizes,
    masked_head,
)
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Mapping[str, Default]] = {
    "bert-generation": {
        **BERT_DEFAULTS,
        **sizes(
            vocab_size=50358,
            hidden_size=1024,
            num_hidden_layers=24,
            num_attention_heads=16,
            intermediate_size=4096,
            type_vocab_size=0,
        ),
    },
    "big_bird": {
        **BERT_DEFAULTS,
        **sizes(vocab_size=50358, max_position_embeddings=4096, use_bias=True),
        **options(hidden_act="gelu_new", attention_type="block_sparse", block_size=64, num_random_blocks=3),
    },
    "mpnet": {
        **BERT_DEFAULTS,
        **sizes(vocab_size=30527, type_vocab_size=0, relative_attention_num_buckets=32),
    },
    "rembert": {
        **BERT_DEFAULTS,
        **sizes(
            vocab_size=250300,
            hidden_size=1152,
            num_hidden_layers=32,
            num_attention_heads=18,
            intermediate_size=4608,
            input_embedding_size=256,
            output_embedding_size=1664,
            tie_word_embeddings=False,
        ),
        **options(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0),
    },
    "roberta-prelayernorm": {**BERT_DEFAULTS, **sizes(vocab_size=50265)},
    "roformer": {
        **BERT_DEFAULTS,
        **sizes(vocab_size=50000, embedding_size=None, max_position_embeddings=1536),
        **options(rotary_value=False),
    },
    "xlm-roberta-xl": {
        **BERT_DEFAULTS,
        **sizes(
            vocab_size=250880,
            hidden_size=2560,
            num_hidden_layers=36,
            num_attention_heads=32,
            intermediate_size=10240,
            max_position_embeddings=514,
            type_vocab_size=1,
        ),
        **options(layer_norm_eps=1e-5),
    },
}
"""The configuration classes of these families, transformers 5.24."""

BEFORE = ("roberta-prelayernorm", "xlm-roberta-xl")
"""Families whose norms stand before a branch, with one more at the end."""


def reader(family: str) -> Callable[[Mapping[str, object], str], ModelSpec]:
    """The reader of one of the families."""
    return lambda raw, name: _read(Config(raw, DEFAULTS[family], family), name)


def _read(config: Config, name: str) -> ModelSpec:
    if config.family != "mpnet":
        refuse_cross_attention(config)
    model = encoder_sizes(config, name)
    if config.family == "rembert" and model.tied:
        raise config.contradiction(
            "tie_word_embeddings",
            "tie_word_embeddings is true, but table and head differ in width; set it to false",
        )
    dropout = config.number("hidden_dropout_prob") > 0
    placement = "pre" if config.family in BEFORE else "post"
    stream = Stream(
        model.hidden, norm="layer", placement="pre" if placement == "pre" else "post", dropout=dropout
    )
    causal = config.family != "mpnet" and config.flag("is_decoder")
    parts = Parts(
        kinds={"dense": _block(config, stream, model.heads, causal)},
        order=("dense",) * model.layers,
        first=_embedding(config, model, dropout),
        last=_head(config, stream, model),
        semantics={
            "norm": "layer",
            "norm_eps": config.number("layer_norm_eps"),
            "activation": config.text("hidden_act"),
            "position": "rope" if config.family == "roformer" else "learned",
            "causal": causal,
        },
    )
    return assemble(config, model, stream, parts)


def _block(config: Config, stream: Stream, heads: int, causal: bool) -> tuple[Operator, ...]:
    """As BERT's: RoFormer rotates, MPNet adds a bias by relative position, BigBird sees some blocks of keys only."""
    attention = AttentionShape(
        heads=heads,
        head_dim=stream.hidden // heads,
        qkv_bias=config.family != "big_bird" or config.flag("use_bias"),
        out_bias=True,
        rope=config.family == "roformer",
        causal=causal,
        window=_sparse_window(config),
        dropout=config.number("attention_probs_dropout_prob") > 0,
    )
    mlp = MlpShape(
        width=config.integer("intermediate_size"), gated=False, function=config.text("hidden_act"), bias=True
    )
    return chain(attention_sublayer(stream, attention), feed_forward_sublayer(stream, mlp))


def _sparse_window(config: Config) -> int:
    """Keys on either side as many as BigBird's blocks hold: three near, two global, some at random (Zaheer 2020)."""
    if (
        config.family != "big_bird"
        or config.text("attention_type", ("block_sparse", "original_full")) != "block_sparse"
    ):
        return 0
    blocks = 5 + config.integer("num_random_blocks", low=0)
    return max(1, blocks * config.integer("block_size") // 2)


def _embedding(config: Config, model: Decoder, dropout: bool) -> tuple[Operator, ...]:
    """Tokens, positions, types; a norm unless blocks begin with one; a linear where the table is narrower."""
    width = model.hidden
    if config.family == "roformer":
        width = config.optional_integer("embedding_size") or model.hidden
    if config.family == "rembert":
        width = config.integer("input_embedding_size")
    rotary = config.family == "roformer"
    table = Embedding(
        name="embedding",
        vocab_size=model.vocab,
        width=width,
        positions=0 if rotary else model.max_seq_len,
        types=config.integer("type_vocab_size", low=0),
        tie=model.embedding_tie,
        dropout=dropout,
    )
    if config.family == "xlm-roberta-xl":
        return (table,)
    found = embedding_layer(table, model.hidden, always=config.family == "rembert")
    if rotary:  # the library keeps sinusoids as parameters
        elements = model.max_seq_len * (model.hidden // model.heads)
        return (*found, PositionTable(name="sinusoids", inputs=("embedding",), elements=elements))
    if config.family == "mpnet":
        elements = config.integer("relative_attention_num_buckets") * model.heads
        return (*found, PositionTable(name="relative_bias", inputs=("embedding",), elements=elements))
    return found


def _head(config: Config, stream: Stream, model: Decoder) -> tuple[Operator, ...]:
    before: tuple[Operator, ...] = ()
    if stream.placement == "pre":
        before = (stream.normalise("final_norm", "x"),)
    if config.family == "bert-generation":
        matrix = LmHead(
            name="logits",
            inputs=("x",),
            vocab_size=model.vocab,
            width=model.hidden,
            tie=model.embedding_tie,
            bias=True,
            second_bias=not model.tied,
        )
        return (matrix, CrossEntropy(name="loss", inputs=("logits",), vocab_size=model.vocab))
    width = model.hidden
    if config.family == "roformer":
        width = config.optional_integer("embedding_size") or model.hidden
    if config.family == "rembert":
        width = config.integer("output_embedding_size")
    function = "gelu" if config.family in ("mpnet", *BEFORE) else config.text("hidden_act")
    head = MaskedHead(
        vocab=model.vocab,
        width=width,
        function=function,
        tie=model.embedding_tie,
        second_bias=not model.tied and config.family != "rembert",
    )
    found = masked_head(model.hidden, head, before)
    if config.family != "big_bird":
        return found
    pooler = model.hidden**2 + model.hidden  # the class holds it and the head never reads it
    return (IdleWeights(name="pooler", elements=pooler), *found)


read_bert_generation = reader("bert-generation")
read_big_bird = reader("big_bird")
read_mpnet = reader("mpnet")
read_rembert = reader("rembert")
read_roberta_prelayernorm = reader("roberta-prelayernorm")
read_roformer = reader("roformer")
read_xlm_roberta_xl = reader("xlm-roberta-xl")
