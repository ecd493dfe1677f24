"""GPT (Radford et al. 2018): GPT-2's sizes with norms after each branch and none at the end."""

from collections.abc import Mapping

from cost_models.operators import CrossEntropy, Embedding, LmHead
from cost_models.readers.blocks.feed_forward import MlpShape
from cost_models.readers.blocks.stream import Stream
from cost_models.readers.huggingface.config import Config, Default, Scalar, options, sizes
from cost_models.readers.huggingface.dense import SizeKeys, multi_head, read_multi_head, uniform
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **sizes(vocab_size=40478, n_positions=512, n_embd=768, n_layer=12, n_head=12, tie_word_embeddings=True),
    **options(afn="gelu", resid_pdrop=0.1, embd_pdrop=0.1, attn_pdrop=0.1, layer_norm_epsilon=1e-5),
}
"""OpenAIGPTConfig of transformers 5.24."""


def read_openai_gpt(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type openai-gpt."""
    config = Config(raw, DEFAULTS, "openai-gpt")
    decoder = read_multi_head(config, name, SizeKeys())
    stream = Stream(decoder.hidden, norm="layer", placement="post", dropout=config.number("resid_pdrop") > 0)
    table = Embedding(
        name="embedding",
        vocab_size=decoder.vocab,
        width=decoder.hidden,
        positions=decoder.max_seq_len,
        tie=decoder.embedding_tie,
        dropout=config.number("embd_pdrop") > 0,
    )
    matrix = LmHead(
        name="logits",
        inputs=("x",),
        vocab_size=decoder.vocab,
        width=decoder.hidden,
        tie=decoder.embedding_tie,
    )
    loss = CrossEntropy(name="loss", inputs=("logits",), vocab_size=decoder.vocab)
    attention = multi_head(config, decoder, "attn_pdrop", qkv_bias=True, out_bias=True, rope=False)
    mlp = MlpShape(width=4 * decoder.hidden, gated=False, function=config.text("afn"), bias=True)
    semantics: dict[str, Scalar] = {"norm_eps": config.number("layer_norm_epsilon"), "position": "learned"}
    blocks = uniform(decoder, stream, attention, mlp)
    return blocks.model(config, decoder, semantics, first=(table,), last=(matrix, loss))
