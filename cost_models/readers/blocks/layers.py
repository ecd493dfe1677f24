"""From operators to layer kinds with recompute scopes; from a kind per layer to runs of equal layers."""

from collections.abc import Sequence
from itertools import groupby

from cost_models.operators import AnyOperator
from cost_models.operators.base import Operator
from cost_models.specs.model import Layer, LayerKind, RecomputeScope, Role

SCOPES: dict[str, tuple[str, ...]] = {
    "core_attn": ("core_attention", "cross_attention"),
    "mlp": ("gate_up", "up", "act", "down"),
    "moe": (
        "router",
        "latent_down",
        "dispatch",
        "expert_gate_up",
        "expert_up",
        "expert_act",
        "expert_down",
        "combine",
        "latent_up",
        "shared_gate_up",
        "shared_up",
        "shared_act",
        "shared_down",
    ),
    "moe_act": ("expert_act",),
    "layernorm": ("attn_norm", "cross_norm", "mlp_norm", "mamba_norm"),
    "mla_up_proj": ("q_up", "kv_up", "rope"),
    "shared_experts": ("shared_gate_up", "shared_up", "shared_act", "shared_down"),
}
"""Operators that run again under each of Megatron-LM's --recompute-modules (arguments.py, core 0.12).
`core_attn`, `mlp`, `moe` and `shared_experts` keep their output; `moe_act`, `layernorm` and `mla_up_proj`
give it up as well."""


AGAIN = "_2"
"""Ends the names of a second sub-layer of one sort in one layer."""


def layer_kind(
    name: str, operators: Sequence[Operator], boundary_width: int, *, cut_after: bool = True
) -> LayerKind:
    """A kind with the scopes that its operators have; `mla_up_proj` exists only in latent attention."""
    present = {operator.name for operator in operators}
    scopes = []
    for scope, members in SCOPES.items():
        both = (*members, *(member + AGAIN for member in members))
        found = tuple(member for member in both if member in present)
        if found and not (scope == "mla_up_proj" and "kv_up" not in present):
            scopes.append(RecomputeScope(name=scope, operators=found, gives_up=_given_up(scope, found)))
    known: tuple[AnyOperator, ...] = tuple(operators)  # type: ignore[arg-type]
    return LayerKind(
        name=name, operators=known, scopes=tuple(scopes), boundary_width=boundary_width, cut_after=cut_after
    )


def _given_up(scope: str, operators: tuple[str, ...]) -> tuple[str, ...]:
    """Outputs that a scope drops: its operators' own, for the up-projections the queries, keys and values."""
    if scope == "mla_up_proj":
        again = tuple(name + AGAIN for name in ("q", "k", "v") if operators[-1].endswith(AGAIN))
        return ("q", "k", "v", *again)
    return operators if scope in ("moe_act", "layernorm") else ()


def runs(kinds: Sequence[str], stack: str = "decoder") -> tuple[Layer, ...]:
    """Blocks in order, equal consecutive ones as one entry."""
    return tuple(Layer(kind=kind, stack=stack, count=len(tuple(same))) for kind, same in groupby(kinds))


def framed(kinds: Sequence[str], *, mtp_layers: int = 0) -> tuple[Layer, ...]:
    """A decoder: embedding, blocks, multi-token-prediction layers, head."""
    mtp = (Layer(kind="mtp", role=Role.MTP, count=mtp_layers),) if mtp_layers else ()
    return (
        Layer(kind="embedding", role=Role.EMBEDDING),
        *runs(kinds),
        *mtp,
        Layer(kind="head", role=Role.HEAD),
    )
