"""What a search may try under an engine, beyond divisors of the device count."""

from dataclasses import dataclass

from cost_models.module_offload import MODULES, modules_of
from cost_models.specs.model import ModelSpec
from cost_models.specs.strategy import DEFAULT_ORDER

SELECTIVE = (
    ("layernorm",),
    ("layernorm", "moe_act"),
    ("layernorm", "moe_act", "mla_up_proj"),
    ("layernorm", "mla_up_proj", "mlp", "moe"),
)
"""Scopes recomputed together, each rung with more bytes freed for more seconds: the cheapest scopes come first."""


def selective_bases(model: ModelSpec, more: tuple[tuple[str, ...], ...] = ()) -> tuple[tuple[str, ...], ...]:
    """None, `more`, and the rungs of SELECTIVE, with the scopes that the model has; each once."""
    names = model.recompute_scopes
    ladder = ((), *more, *SELECTIVE)
    return tuple(dict.fromkeys(tuple(name for name in rung if name in names) for rung in ladder))


OFFLOADED = (
    ("attn_proj", "core_attn"),
    ("expert_fc1",),
    ("expert_fc1", "moe_act"),
    ("attn_proj", "core_attn", "expert_fc1"),
    MODULES,
)
"""Modules whose tensors go to the host together, in alphabetical order: those of attention, of experts, all."""


def offloaded_modules(model: ModelSpec) -> tuple[tuple[str, ...], ...]:
    """The sets of OFFLOADED with the modules that the model has; each once."""
    has = modules_of(model)
    rungs = (tuple(sorted(name for name in rung if name in has)) for rung in OFFLOADED)
    return tuple(rung for rung in dict.fromkeys(rungs) if rung)


ORDERS = (DEFAULT_ORDER, ("tp", "cp", "ep", "pp", "dp"))
"""Of ranks on devices, inner first; the second is Megatron-LM's --use-tp-pp-dp-mapping."""


@dataclass(frozen=True, slots=True)
class Space:
    """The values a search may give each axis under this engine, beyond divisors of the device count."""

    zero: tuple[int, ...]
    schedules: tuple[str, ...]
    scopes: tuple[tuple[str, ...], ...]
    pipeline: bool = True
    tensor: bool = True
    context: bool = True
    expert: bool = True
    cp_kinds: tuple[str, ...] = ("ring", "allgather", "ulysses")
    """Kinds of context parallelism, where the engine has any; without it the first says nothing."""
    hierarchical: bool = False
    """Ulysses inside groups of context ranks and a ring across them; asked for, not searched by itself."""
    uniform_full: bool = True
    uniform_chunks: bool = False
    lone_ends: bool = False
    """The first or the last virtual stage may hold the embedding or the loss alone; asked for, not searched."""
    full_recompute: bool = True
    offload: tuple[str, ...] = ()
    """Kinds of offload that the engine has, beside none."""
    act_offload: tuple[str, ...] = ()
    """Kinds of activation offload that the engine has (`checkpoints`, `blocks`, `modules`); asked for, not searched by
    itself."""
    offload_modules: tuple[tuple[str, ...], ...] = ()
    """Sets of modules that are tried where all kinds are asked for; any modules may be pinned."""
    most_offloaded: int | None = None
    """Most blocks whose activations it moves; None: all."""
    whole_layers: bool = False
    """The engine recomputes whole layers, and in part only as `scopes` says; others take any scopes of the model."""
    own_scopes: tuple[str, ...] = ()
    """Recompute scopes that the engine adds to the model's."""
    replicate_zero: int = 2
    """Least ZeRO stage whose shards may be replicated."""
    orders: tuple[tuple[str, ...], ...] = ORDERS
    """Orders of the axes on the link tiers, inner first."""

    def recomputed_apart(self, model: ModelSpec) -> tuple[str, ...]:
        """Scopes that the engine recomputes without the rest of their layer."""
        known = (*model.recompute_scopes, *self.own_scopes)
        offered = {scope for scopes in self.scopes for scope in scopes}
        return tuple(scope for scope in known if scope in offered) if self.whole_layers else known
