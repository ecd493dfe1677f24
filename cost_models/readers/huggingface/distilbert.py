"""DistilBERT (2019): BERT without token types, under keys of its own."""

from collections.abc import Mapping

from cost_models.operators import Embedding
from cost_models.readers.blocks.attention import AttentionShape, attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, feed_forward_sublayer
from cost_models.readers.blocks.stream import Stream, chain
from cost_models.readers.huggingface.common import Decoder, Parts, assemble
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.encoder import MaskedHead, check_heads, embedding_layer, masked_head
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **sizes(
        vocab_size=30522,
        dim=768,
        n_layers=6,
        n_heads=12,
        hidden_dim=3072,
        max_position_embeddings=512,
        tie_word_embeddings=True,
    ),
    **options(activation="gelu", dropout=0.1, attention_dropout=0.1, sinusoidal_pos_embds=False),
}
"""DistilBertConfig of transformers 5.24."""

NORM_EPS = 1e-12
"""Fixed in the class."""


def read_distilbert(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type distilbert, trained on masked tokens."""
    config = Config(raw, DEFAULTS, "distilbert")
    model, function = _sizes(config, name), config.text("activation")
    dropout = config.number("dropout") > 0
    stream = Stream(model.hidden, norm="layer", placement="post", dropout=dropout)
    attention = AttentionShape(
        heads=model.heads,
        head_dim=model.hidden // model.heads,
        qkv_bias=True,
        out_bias=True,
        fp32_softmax=False,
        rope=False,
        causal=False,
        dropout=config.number("attention_dropout") > 0,
    )
    mlp = MlpShape(
        width=config.integer("hidden_dim", "intermediate_size"), gated=False, function=function, bias=True
    )
    table = Embedding(
        name="embedding",
        vocab_size=model.vocab,
        width=model.hidden,
        positions=model.max_seq_len,
        tie=model.embedding_tie,
        dropout=dropout,
    )
    head = MaskedHead(vocab=model.vocab, width=model.hidden, function=function, tie=model.embedding_tie)
    sinusoidal = config.flag("sinusoidal_pos_embds")
    parts = Parts(
        kinds={"dense": chain(attention_sublayer(stream, attention), feed_forward_sublayer(stream, mlp))},
        order=("dense",) * model.layers,
        first=embedding_layer(table, model.hidden),
        last=masked_head(model.hidden, head),
        semantics={
            "norm": "layer",
            "norm_eps": NORM_EPS,
            "activation": function,
            "position": "sinusoidal" if sinusoidal else "learned",
            "causal": False,
        },
    )
    return assemble(config, model, stream, parts)


def _sizes(config: Config, name: str) -> Decoder:
    hidden = config.integer("dim", "hidden_size")
    heads = config.count("n_heads", "num_attention_heads")
    check_heads(config, "dim", hidden, heads, "n_heads")
    return Decoder(
        name=name,
        hidden=hidden,
        layers=config.count("n_layers", "num_hidden_layers"),
        vocab=config.integer("vocab_size"),
        heads=heads,
        kv_heads=heads,
        max_seq_len=config.integer("max_position_embeddings"),
        tied=config.flag("tie_word_embeddings"),
    )
