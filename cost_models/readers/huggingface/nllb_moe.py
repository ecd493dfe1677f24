"""NLLB-MoE: M2M-100's two stacks with two experts a token in every so many layers."""

from collections.abc import Mapping
from dataclasses import dataclass

from cost_models.operators.base import Operator
from cost_models.readers.blocks.attention import AttentionShape, attention_sublayer
from cost_models.readers.blocks.cross_attention import cross_attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, MoeShape, feed_forward_sublayer
from cost_models.readers.blocks.layers import layer_kind
from cost_models.readers.blocks.stream import Stream, chain
from cost_models.readers.huggingface.bart_families import DEFAULTS as BART_DEFAULTS
from cost_models.readers.huggingface.bart_families import NORM_EPS
from cost_models.readers.huggingface.common import refuse_untied
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.encoder import check_heads
from cost_models.readers.huggingface.switch_transformers import STACKS, TWO_STACKS, stack_ends, stack_layers
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **BART_DEFAULTS["m2m_100"],
    **sizes(num_experts=128, encoder_sparse_step=4, decoder_sparse_step=4, router_bias=False),
    **options(expert_capacity=64),
}
"""NllbMoeConfig of transformers 5.24."""

TOP_K = 2
"""Experts a token in the class (NLLB Team 2022, section 6.2)."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """What the blocks of both stacks are built from."""

    config: Config
    stream: Stream
    experts: int

    def attention(self, stack: str) -> AttentionShape:
        """Self-attention of a stack; the decoder's cross-attention has the same sizes."""
        heads_key = f"{stack}_attention_heads"
        heads = self.config.count(heads_key)
        check_heads(self.config, "d_model", self.stream.hidden, heads, heads_key)
        return AttentionShape(
            heads=heads,
            head_dim=self.stream.hidden // heads,
            qkv_bias=True,
            out_bias=True,
            rope=False,
            causal=stack == "decoder",
            dropout=self.config.number("attention_dropout") > 0,
        )

    def feed_forward(self, stack: str, routed: bool) -> MlpShape | MoeShape:
        """A biased feed-forward, or experts of its width and with its biases."""
        width, function = (
            self.config.integer(f"{stack}_ffn_dim"),
            self.config.text("activation_function"),
        )
        if not routed:
            return MlpShape(width=width, gated=False, function=function, bias=True)
        return MoeShape(
            experts=self.experts,
            top_k=TOP_K,
            width=width,
            gated=False,
            function=function,
            router_bias=self.config.flag("router_bias"),
            expert_bias=True,
        )

    def operators(self, kind: str) -> tuple[Operator, ...]:
        """A block of the kind: norm first, biases everywhere."""
        stack = "encoder" if kind.startswith("encoder") else "decoder"
        shape = self.attention(stack)
        own = attention_sublayer(self.stream, shape)
        feed = feed_forward_sublayer(self.stream, self.feed_forward(stack, "moe" in kind))
        if stack == "encoder":
            return chain(own, feed)
        return chain(own, cross_attention_sublayer(self.stream, shape, kind.endswith("_first")), feed)


def read_nllb_moe(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type nllb-moe."""
    config = Config(raw, DEFAULTS, "nllb-moe")
    hidden, vocab = config.integer("d_model", "hidden_size"), config.integer("vocab_size")
    stream = Stream(hidden, norm="layer", dropout=config.number("dropout") > 0)
    refuse_untied(config)
    experts = config.count("num_experts", low=TOP_K)
    blocks = Blocks(config, stream, experts)
    kinds_of = {stack: _kinds_of(config, stack) for stack in STACKS}
    built = {kind: blocks.operators(kind) for kinds in kinds_of.values() for kind in dict.fromkeys(kinds)}
    built |= stack_ends(stream, vocab)
    routed = any("moe" in kind for kind in built)
    heads = blocks.attention("decoder").heads
    return ModelSpec(
        name=name,
        family=config.family,
        layers=stack_layers(kinds_of),
        kinds={
            kind: layer_kind(kind, operators, hidden, cut_after=kind not in {"head", "encoder_norm"})
            for kind, operators in built.items()
        },
        stacks=TWO_STACKS,
        vocab_size=vocab,
        hidden_size=hidden,
        num_attention_heads=heads,
        num_kv_heads=heads,
        num_experts=experts if routed else 0,
        num_experts_per_token=TOP_K if routed else 0,
        max_seq_len=config.integer("max_position_embeddings"),
        tied_embeddings=True,
        semantics={"norm": "layer", "norm_eps": NORM_EPS, "position": "sinusoidal"},
        assumed=config.assumed,
        reader="huggingface",
    )


def _kinds_of(config: Config, stack: str) -> tuple[str, ...]:
    """Experts in the last of every so many layers, nowhere where that is 0."""
    step = config.integer(f"{stack}_sparse_step", low=0)
    found = []
    for layer in range(config.count(f"{stack}_layers")):
        experts = step > 0 and (layer + 1) % step == 0
        first = "_first" if layer == 0 and stack == "decoder" else ""
        found.append(stack + ("_moe" if experts else "") + first)
    return tuple(found)
