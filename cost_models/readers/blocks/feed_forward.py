"""Feed-forward sub-layers: dense, gated, and mixtures of experts."""

from cost_models.operators import Activation, Combine, Dispatch, GroupedLinear, Linear, Router
from cost_models.operators.base import Operator
from cost_models.operators.linear import Part
from cost_models.readers.blocks.stream import Branch, Builder, Size, Stream, Width, replicated, row, sublayer
from cost_models.specs.base import Frozen

PLAIN_GELU_COPIES = 3
"""Tensors that the tanh GELU keeps beside its input when written in plain operators: GPT-2's layer of 28 h
elements per token measured in transformers 5.24 leaves 4 x 4h for it, input included."""


class MlpShape(Frozen):
    """Two-matrix feed-forward, or three-matrix when gated."""

    width: Size
    gated: bool = True
    function: str = "silu"
    bias: bool = False


class MoeShape(Frozen):
    """Routed experts of `width`, top_k of them per token, and shared experts of `shared_width` in all.

    `latent` above 0: experts read and write a projection of the hidden state to that width.
    """

    experts: Size
    top_k: Size
    width: Size
    gated: bool = True
    function: str = "silu"
    shared_width: Width = 0
    shared_gate: bool = False
    bias: bool = False
    latent: Width = 0
    router_bias: bool = False
    """A bias of the router's scores that is a parameter (gpt-oss; the correction bias of ERNIE, AFMoE)."""
    fp32_router: bool = False
    """The library's router reads an fp32 copy of the tokens (DeepSeek-V3)."""
    groups: Width = 0
    kept_groups: Width = 0
    """Experts stand in groups, of which the best few are kept by their two best scores (DeepSeek-V3)."""
    expert_bias: bool = False
    """Biases inside the routed experts (gpt-oss)."""
    identities: Width = 0
    """Further experts that hand their input on; the first linear stores weights for them too (LongCat-Flash)."""


def mlp_branch(shape: MlpShape, hidden: int, source: str, prefix: str = "") -> Branch:
    """Up (and gate) linear, activation, down linear."""
    up = f"{prefix}gate_up" if shape.gated else f"{prefix}up"
    names = ("gate", "up") if shape.gated else ("up",)
    parts = tuple(Part(name=name, features=shape.width) for name in names)
    found = (
        Linear(name=up, inputs=(source,), in_features=hidden, parts=parts, bias=shape.bias),
        activation(f"{prefix}act", up, shape),
        row(f"{prefix}down", f"{prefix}act", shape.width, hidden, shape.bias),
    )
    return Branch(found, (f"{prefix}down",))


def activation(name: str, source: str, shape: MlpShape | MoeShape, expert_top_k: int = 0) -> Activation:
    """The activation of a feed-forward; a tanh GELU in plain operators keeps more than a fused one."""
    copies = {"gelu_new": PLAIN_GELU_COPIES, "gelu": 0, "gelu_pytorch_tanh": 0, "relu": 0}.get(
        shape.function, 1
    )
    return Activation(
        name=name,
        inputs=(source,),
        function=shape.function,
        width=shape.width,
        gated=shape.gated,
        expert_top_k=expert_top_k,
        unfused_copies=copies,
    )


def moe_branch(shape: MoeShape, hidden: int, source: str) -> Branch:
    """Router, dispatch, grouped linears, combine; shared experts as a dense feed-forward beside them."""
    routed = shape.latent or hidden
    found: list[Operator] = [
        Router(
            name="router",
            inputs=(source,),
            hidden=hidden,
            experts=shape.experts + shape.identities,
            top_k=shape.top_k,
            bias=shape.router_bias,
            shared_gate=shape.shared_gate,
            fp32_input=shape.fp32_router,
            groups=shape.groups,
            kept_groups=shape.kept_groups,
        )
    ]
    if shape.latent:
        found.append(replicated("latent_down", source, hidden, routed, shape.bias))
    found += _expert_operators(shape, routed, "latent_down" if shape.latent else source)
    outputs: tuple[str, ...] = ("combine",)
    if shape.latent:
        found.append(replicated("latent_up", "combine", routed, hidden, shape.bias))
        outputs = ("latent_up",)
    if shape.shared_width:
        shared = MlpShape(
            width=shape.shared_width, gated=shape.gated, function=shape.function, bias=shape.bias
        )
        branch = mlp_branch(shared, hidden, source, prefix="shared_")
        found += branch.operators
        outputs += branch.outputs
    return Branch(tuple(found), outputs)


def _expert_operators(shape: MoeShape, routed: int, source: str) -> tuple[Operator, ...]:
    up = "expert_gate_up" if shape.gated else "expert_up"
    out_features = 2 * shape.width if shape.gated else shape.width
    experts, top_k = shape.experts, shape.top_k
    return (
        Dispatch(name="dispatch", inputs=(source,), hidden=routed, top_k=top_k),
        GroupedLinear(
            name=up,
            inputs=("dispatch",),
            experts=experts,
            top_k=top_k,
            in_features=routed,
            out_features=out_features,
            bias=shape.expert_bias,
            idle_experts=shape.identities,
        ),
        activation("expert_act", up, shape, expert_top_k=top_k),
        GroupedLinear(
            name="expert_down",
            inputs=("expert_act",),
            experts=experts,
            top_k=top_k,
            in_features=shape.width,
            out_features=routed,
            split="row",
            bias=shape.expert_bias,
        ),
        Combine(name="combine", inputs=("expert_down",), hidden=routed, top_k=top_k),
    )


def feed_forward_sublayer(stream: Stream, shape: MlpShape | MoeShape) -> Builder:
    """A builder for `chain`: norm, dense or routed feed-forward, residual."""

    def branch(source: str) -> Branch:
        if isinstance(shape, MoeShape):
            return moe_branch(shape, stream.hidden, source)
        return mlp_branch(shape, stream.hidden, source)

    return lambda source: sublayer(stream, "mlp", source, branch)
