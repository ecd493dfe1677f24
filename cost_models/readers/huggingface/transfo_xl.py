"""Transformer-XL (Dai et al. 2019): relative positions, adaptive embedding and softmax."""

from collections.abc import Mapping

from cost_models.operators import AdaptiveEmbedding, AdaptiveSoftmax, Cluster, CrossEntropy, DisentangledBias
from cost_models.operators.base import Operator
from cost_models.readers.blocks.attention import AttentionShape, attention_branch
from cost_models.readers.blocks.feed_forward import MlpShape, feed_forward_sublayer
from cost_models.readers.blocks.stream import Branch, Stream, chain, scalars, sublayer
from cost_models.readers.huggingface.common import Decoder, Parts, assemble
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **sizes(
        vocab_size=267735,
        cutoffs=(20000, 40000, 200000),
        d_model=1024,
        d_embed=1024,
        n_head=16,
        d_head=64,
        d_inner=4096,
        div_val=4,
        n_layer=18,
        proj_share_all_but_first=True,
        tie_word_embeddings=True,
        untie_r=True,
        adaptive=True,
    ),
    **options(
        pre_lnorm=False, dropout=0.1, dropatt=0.0, mem_len=1600, clamp_len=1000, layer_norm_epsilon=1e-5
    ),
}
"""TransfoXLConfig of transformers 4.35, the last release with the class; the sizes of transfo-xl-wt103."""


def read_transfo_xl(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type transfo-xl with its adaptive softmax.

    The first cluster's output projection is the softmax's own, the others are the embedding's
    (`proj_share_all_but_first`); keys of earlier segments (mem_len) are not counted.
    """
    config = Config(raw, DEFAULTS, "transfo-xl")
    for key, known in (("untie_r", True), ("adaptive", True), ("proj_share_all_but_first", True)):
        if config.flag(key) is not known:
            raise config.contradiction(
                key, f"{key} is {not known}, which no published model is; set it to {known}"
            )
    hidden, heads = config.integer("d_model"), config.count("n_head")
    stream = Stream(
        hidden,
        norm="layer",
        placement="pre" if config.flag("pre_lnorm") else "post",
        dropout=config.number("dropout") > 0,
    )
    clusters = _clusters(config)
    config.note("mem_len", "0 further keys are counted", changes_parameters=False)
    layers = config.count("n_layer")
    decoder = Decoder(
        name=name,
        hidden=hidden,
        layers=layers,
        vocab=config.integer("vocab_size"),
        heads=heads,
        kv_heads=heads,
        max_seq_len=0,
        tied=config.flag("tie_word_embeddings"),
    )
    if not decoder.tied:
        raise config.contradiction(
            "tie_word_embeddings", "tie_word_embeddings is false, which is not read here"
        )
    parts = Parts(
        kinds={"dense": _block(config, stream, heads)},
        order=("dense",) * layers,
        semantics={
            "norm": "layer",
            "norm_eps": config.number("layer_norm_epsilon"),
            "activation": "relu",
            "position": "relative",
        },
        first=(AdaptiveEmbedding(name="embedding", clusters=clusters, hidden=hidden),),
        last=_last(clusters, hidden),
    )
    return assemble(config, decoder, stream, parts)


def _block(config: Config, stream: Stream, heads: int) -> tuple[Operator, ...]:
    """Attention with scores by relative position and two biases of a head's size, feed-forward with biases."""
    shape = AttentionShape(
        heads=heads, head_dim=config.integer("d_head"), rope=False, dropout=config.number("dropatt") > 0
    )
    if shape.heads * shape.head_dim != stream.hidden:
        raise config.contradiction(
            "d_head", f"n_head {heads} x d_head {shape.head_dim} is not d_model {stream.hidden}; make it so"
        )
    positions = DisentangledBias(
        name="position_scores",
        inputs=("q",),
        hidden=stream.hidden,
        heads=heads,
        span=config.integer("clamp_len"),
        terms=1,
        weights=1,
        biases=0,
    )

    def branch(source: str) -> Branch:
        first, *rest = attention_branch(shape, stream.hidden, source).operators
        biases = scalars("position_biases", 2 * heads * shape.head_dim)
        return Branch((first, biases, positions, *rest), ("proj",))

    mlp = MlpShape(width=config.integer("d_inner"), gated=False, function="relu", bias=True)
    return chain(lambda source: sublayer(stream, "attn", source, branch), feed_forward_sublayer(stream, mlp))


def _clusters(config: Config) -> tuple[Cluster, ...]:
    """Ranges between the cutoffs, each narrower than the one before by div_val."""
    vocab, width, ratio = config.integer("vocab_size"), config.integer("d_embed"), config.integer("div_val")
    ends = (*config.integers("cutoffs"), vocab)
    starts = (0, *ends[:-1])
    if ratio == 1 or any(start >= end for start, end in zip(starts, ends, strict=True)):
        raise config.contradiction(
            "cutoffs",
            f"cutoffs {list(ends[:-1])} must rise to below vocab_size {vocab}, with a div_val above 1; change them",
        )
    widths = tuple(width // ratio**index for index in range(len(ends)))
    if not widths[-1]:
        raise config.contradiction(
            "div_val", f"div_val {ratio} leaves the last cluster no features; use less"
        )
    return tuple(
        Cluster(rows=end - start, width=each) for start, end, each in zip(starts, ends, widths, strict=True)
    )


def _last(clusters: tuple[Cluster, ...], hidden: int) -> tuple[Operator, ...]:
    softmax = AdaptiveSoftmax(
        name="logits", inputs=("x",), clusters=clusters, hidden=hidden, own_projections=(0,)
    )
    return (softmax, CrossEntropy(name="loss", inputs=("logits",), vocab_size=softmax.classes))
