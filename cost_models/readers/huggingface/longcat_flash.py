"""LongCat-Flash: layers of two latent attentions and two feed-forwards, with experts on a path around the second."""

from collections.abc import Mapping

from cost_models.operators import Residual
from cost_models.operators.base import Operator
from cost_models.readers.blocks.attention import LatentAttentionShape, attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, MoeShape, feed_forward_sublayer, moe_branch
from cost_models.readers.blocks.layers import AGAIN
from cost_models.readers.blocks.stream import Stream, chain, renamed
from cost_models.readers.huggingface.common import DECODER_DEFAULTS, Parts, assemble, read_decoder
from cost_models.readers.huggingface.config import Config, Default, options, sizes
from cost_models.readers.huggingface.deepseek import latent_attention
from cost_models.readers.huggingface.routed import read_experts, semantics
from cost_models.specs.model import ModelSpec

DEFAULTS: Mapping[str, Default] = {
    **DECODER_DEFAULTS,
    **sizes(
        vocab_size=131072,
        hidden_size=6144,
        num_layers=28,
        num_attention_heads=64,
        num_key_value_heads=None,
        attention_bias=False,
        ffn_hidden_size=12288,
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_nope_head_dim=128,
        qk_rope_head_dim=64,
        v_head_dim=128,
        n_routed_experts=512,
        zero_expert_num=256,
        expert_ffn_hidden_size=2048,
    ),
    **options(
        moe_topk=12,
        max_position_embeddings=131072,
        rms_norm_eps=1e-5,
        rope_theta=1e7,
        routed_scaling_factor=6.0,
    ),
}
"""LongcatFlashConfig of transformers 5.24."""


def read_longcat_flash(raw: Mapping[str, object], name: str) -> ModelSpec:
    """A model of type longcat_flash.

    The class stores the first matrices of identity experts too, which published checkpoints leave out; a token is
    taken to choose no identity expert, so active parameters and FLOPs are upper bounds.
    """
    config = Config(raw, DEFAULTS, "longcat_flash")
    decoder = read_decoder(config, name, layers=_layers(config))
    config.integer("q_lora_rank")
    if config.states("router_bias") and config.flag("router_bias"):
        raise config.contradiction(
            "router_bias", "router_bias is true, which no published model has; drop it"
        )
    stream, moe = Stream(decoder.hidden), _moe(config)
    mlp = MlpShape(
        width=config.integer("ffn_hidden_size", "intermediate_size"), function=config.text("hidden_act")
    )
    block = _layer(stream, latent_attention(config), mlp, moe)
    if moe.identities:
        config.note(
            "zero_expert_num",
            f"{moe.identities} identity experts, whose first matrices the class stores and nothing reads",
            changes_parameters=True,
        )
    parts = Parts(
        kinds={"moe": block},
        order=("moe",) * decoder.layers,
        semantics=semantics(
            config,
            router_scoring="softmax",
            router_scaling=config.number("routed_scaling_factor"),
            router_bias_correction=True,
        ),
        moe=moe,
    )
    return assemble(config, decoder, stream, parts)


def _layers(config: Config) -> int:
    """num_layers, or half of num_hidden_layers, which counts attentions."""
    if config.states("num_layers") or not config.states("num_hidden_layers"):
        layers = config.count("num_layers")
        if config.listed("num_hidden_layers") and config.count("num_hidden_layers") != 2 * layers:
            raise config.contradiction(
                "num_hidden_layers",
                f"num_hidden_layers {config.count('num_hidden_layers')} is not twice num_layers {layers}; drop it",
            )
        return layers
    return max(1, config.count("num_hidden_layers", low=2) // 2)


def _moe(config: Config) -> MoeShape:
    experts, top_k = read_experts(
        config, ("n_routed_experts", "num_local_experts"), "moe_topk", ("num_experts_per_tok",)
    )
    return MoeShape(
        experts=experts,
        top_k=top_k,
        width=config.integer("expert_ffn_hidden_size", "moe_intermediate_size"),
        function=config.text("hidden_act"),
        identities=config.optional_integer("zero_expert_num", low=0) or 0,
    )


def _layer(
    stream: Stream, attention: LatentAttentionShape, mlp: MlpShape, moe: MoeShape
) -> tuple[Operator, ...]:
    """Attention, feed-forward and experts on one norm; attention, feed-forward; the experts' output added last."""
    first = chain(attention_sublayer(stream, attention), feed_forward_sublayer(stream, mlp))
    experts = moe_branch(moe, stream.hidden, "mlp_norm")
    again = renamed(
        chain(
            attention_sublayer(stream, attention),
            feed_forward_sublayer(stream, mlp),
            source=first[-1].name,
        ),
        AGAIN,
        first[-1].name,
    )
    shortcut = Residual(name="shortcut", inputs=(again[-1].name, *experts.outputs), width=stream.hidden)
    return (*first, *experts.operators, *again, shortcut)
