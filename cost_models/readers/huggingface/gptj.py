"""GPT-J and CodeGen: attention and feed-forward side by side behind one LayerNorm, a head with a bias."""

from collections.abc import Callable, Mapping

from cost_models.readers.blocks.feed_forward import MlpShape
from cost_models.readers.blocks.stream import Stream, embedding, head
from cost_models.readers.huggingface.config import Config, Default, Scalar, options, sizes
from cost_models.readers.huggingface.dense import SizeKeys, inner_width, multi_head, read_multi_head, uniform
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **sizes(vocab_size=50400, n_embd=4096, n_layer=28, n_head=16, n_inner=None, tie_word_embeddings=False),
    **options(
        n_positions=2048,
        rotary_dim=64,
        activation_function="gelu_new",
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        layer_norm_epsilon=1e-5,
    ),
}
"""GPTJConfig and CodeGenConfig of transformers 5.24; a null n_inner means 4 x n_embd."""


def reader(family: str) -> Callable[[Mapping[str, object], str], ModelSpec]:
    """The reader of gptj or codegen, which have the same sizes and counts."""
    return lambda raw, name: _read(Config(raw, DEFAULTS, family), name)


def _read(config: Config, name: str) -> ModelSpec:
    decoder = read_multi_head(config, name, SizeKeys())
    hidden, head_dim = decoder.hidden, decoder.hidden // decoder.heads
    stream = Stream(hidden, norm="layer", dropout=config.number("resid_pdrop") > 0)
    rotary = config.optional_integer("rotary_dim") or head_dim
    if not config.states("rotary_dim"):
        rotary = min(rotary, head_dim)
    if rotary > head_dim:
        raise config.contradiction(
            "rotary_dim", f"rotary_dim {rotary} is more than the head size {head_dim}; use at most {head_dim}"
        )
    attention = multi_head(config, decoder, "attn_pdrop", rope_dim=rotary)
    mlp = MlpShape(
        width=inner_width(config, "n_inner", hidden),
        gated=False,
        function=config.text("activation_function"),
        bias=True,
    )
    semantics: dict[str, Scalar] = {
        "norm_eps": config.number("layer_norm_epsilon"),
        "position": "rope",
        "rope_interleaved": True,
        "rotary_dim": rotary,
    }
    first = (embedding(decoder.vocab, hidden, decoder.embedding_tie, config.number("embd_pdrop") > 0),)
    last = head(stream, decoder.vocab, decoder.embedding_tie, bias=True)
    return uniform(decoder, stream, attention, mlp, parallel_norms=1).model(
        config, decoder, semantics, first=first, last=last
    )


read_gptj = reader("gptj")
read_codegen = reader("codegen")
