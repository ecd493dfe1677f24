"""A user's own model: `package.module:function` returns an nn.Module, alone or with hints how to cut and divide it.

Hints are attributes or keys beside `module`: `stages`, for each pipeline stage the names of the submodules it calls
one after the other; `tp_plan`, patterns of submodule names and "colwise" or "rowwise"; `loss`, a function of output
and targets that gives the SUM over what is counted; `example_batch`, an input on which the stages must equal the
module.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)
from torch.utils.checkpoint import checkpoint

from cost_models.errors import BadInput, Violation
from cost_models.specs.strategy import Strategy
from planner.executor.data.user import load_entry
from planner.executor.model.loss import class_loss_sum, token_loss_sum
from planner.executor.model.options import BuildOptions, ChunkCut

STYLES: Final[Mapping[str, Callable[[], ParallelStyle]]] = {
    "colwise": ColwiseParallel,
    "rowwise": RowwiseParallel,
}
CHECKED_PARAMETERS: Final = 50_000_000
"""Modules up to this size are run once, whole and stage by stage, before anything is launched."""

TOLERANCE: Final = 1e-5
CONTAINERS: Final = (nn.ModuleList, nn.ModuleDict)
HINTS: Final = ("module", "example_batch", "stages", "tp_plan", "loss")


@dataclass(frozen=True, slots=True)
class UserModel:
    """What a factory gave."""

    module: nn.Module
    stages: tuple[tuple[str, ...], ...] = ()
    tp_plan: Mapping[str, str] = field(default_factory=dict)
    loss: Callable[[Any, Tensor], Tensor] | None = None
    example_batch: Any = None


@dataclass(frozen=True, slots=True)
class UserLoss:
    """The user's loss, or the cross entropy of token logits [B, S, V] or class logits [B, C]; a SUM."""

    own: Callable[[Any, Tensor], Tensor] | None = None

    def total(self, output: Any, targets: Tensor) -> Tensor:
        """The sum of the losses."""
        if self.own is not None:
            return self.own(output, targets)
        wanted = 3 if targets.dim() == 2 else 2
        if output.dim() != wanted:
            raise BadInput(
                f"the factory's model gave {tuple(output.shape)} for targets {tuple(targets.shape)}; return logits "
                "[B, S, V] for tokens or [B, C] for classes, or give a `loss`"
            )
        if int(targets.max()) >= output.shape[-1]:
            raise BadInput(
                f"the factory's model gave logits of {output.shape[-1]:,} classes, and targets go up to "
                f"{int(targets.max()):,}; give the model as many as the data has"
            )
        return token_loss_sum(output, targets) if output.dim() == 3 else class_loss_sum(output, targets)


class FactoryChunk(nn.Module):
    """One stage of a user's module, or all of it; parameters keep the names that they have in the module."""

    def __init__(self, user: UserModel, stage: int, num_stages: int) -> None:
        super().__init__()
        self.model = user.module
        self.calls = user.stages[stage] if num_stages > 1 else ()
        self.cut = ChunkCut(first=stage == 0, last=stage == num_stages - 1, start=stage, stop=stage + 1)
        self.loss = UserLoss(user.loss)
        self.recomputed: tuple[str, ...] = ()

    def forward(self, x: Tensor) -> Tensor:
        """The stage's output; of a module that returns an object with logits, these."""
        if not self.calls:
            return _tensor(self.model(x))
        for name in self.calls:
            part = self.model.get_submodule(name)
            again = name in self.recomputed and self.training
            x = checkpoint(part, x, use_reentrant=False) if again else part(x)
        return _tensor(x)


def load_factory(reference: str, seed: int = 0) -> UserModel:
    """Import and call the factory, its random numbers drawn from the seed; raises BadInput naming what is wrong."""
    function = load_entry(reference, "factory")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            found = function()
        except Exception as error:
            raise BadInput(
                f"factory {reference:.80} raised {type(error).__name__}: {str(error)[:200]}"
            ) from error
    if isinstance(found, nn.Module):
        return UserModel(found)
    values = dict(found) if isinstance(found, Mapping) else {key: getattr(found, key, None) for key in HINTS}
    unknown = [key for key in values if key not in HINTS]
    if unknown:
        raise BadInput(f"factory {reference:.80} gave {unknown[0]!r:.60}; use {', '.join(HINTS)}")
    module = values.get("module")
    if not isinstance(module, nn.Module):
        raise BadInput(
            f"factory {reference:.80} gave {type(found).__name__}; return an nn.Module, alone or as `module`"
        )
    try:
        stages = tuple(tuple(group) for group in values.get("stages") or ())
        plan = dict(values.get("tp_plan") or {})
    except (TypeError, ValueError) as error:
        raise BadInput(
            f"factory {reference:.80} gave hints that cannot be used ({str(error)[:100]}); give stages as lists of "
            "submodule names and tp_plan as a mapping"
        ) from None
    return UserModel(module, stages, plan, values.get("loss"), values.get("example_batch"))


def factory_violations(reference: str, strategy: Strategy) -> tuple[Violation, ...]:
    """What the factory's model cannot do of the strategy, by name."""
    try:
        user = load_factory(reference)
    except BadInput as error:
        return (Violation("factory", error.detail),)
    return (
        *_parameter_violations(user.module),
        *_axis_violations(user, strategy),
        *_stage_violations(user, strategy),
    )


def _parameter_violations(module: nn.Module) -> list[Violation]:
    parameters = list(module.parameters())
    if any(isinstance(parameter, nn.UninitializedParameter) for parameter in parameters):
        detail = "the factory's model has lazy parameters without a shape"
        return [Violation("factory_lazy", detail, ("a model that was called once before it is returned",))]
    if not any(parameter.requires_grad for parameter in parameters):
        detail = f"of the factory's {len(parameters):,} parameters none is trained"
        return [Violation("factory_frozen", detail, ("a model with parameters that require a gradient",))]
    return []


def build_factory_chunk(reference: str, stage: int, num_stages: int, options: BuildOptions) -> FactoryChunk:
    """One stage of the factory's model on this rank, divided by its tp_plan."""
    user = load_factory(reference, options.seed)
    _mark_ties(user.module)
    chunk = FactoryChunk(user, stage, num_stages)
    if chunk.calls:
        _drop_others(user.module, chunk.calls)
    chunk.recomputed = chunk.calls if options.full_layers else ()
    tp = options.tensor_parallel
    if tp.size > 1 and tp.mesh is not None:
        held = {name for name, _ in user.module.named_modules()}
        plan = {name: style for name, style in _plan(user).items() if _matches(name, held)}
        parallelize_module(user.module, tp.mesh, plan)
    return chunk.to(options.device)


def _axis_violations(user: UserModel, strategy: Strategy) -> list[Violation]:
    found = []
    if strategy.tp > 1 and not user.tp_plan:
        found.append(
            Violation(
                "factory_tp", f"tp {strategy.tp} needs a tp_plan, which the factory does not give", ("tp 1",)
            )
        )
    unknown = [style for style in user.tp_plan.values() if style not in STYLES]
    if unknown:
        found.append(Violation("factory_tp_plan", f"tp_plan holds {unknown[0]!r:.40}", tuple(STYLES)))
    if strategy.sp:
        detail = "sequence parallelism is not applied to a factory's model"
        found.append(Violation("factory_sp", detail, ("sp=false",)))
    recompute = strategy.recompute
    whole = all(full in (0, size) for full, size in zip(strategy.full_layers(), strategy.stages, strict=True))
    if recompute.scopes or not whole or (any(strategy.full_layers()) and not user.stages):
        detail = f"recompute={recompute.text()} is not applied to a factory's model"
        nearest = ("recompute=none", "recompute=full with stages in the factory")
        found.append(Violation("factory_recompute", detail, nearest))
    return found


def _stage_violations(user: UserModel, strategy: Strategy) -> list[Violation]:
    wanted = strategy.pp * strategy.vpp
    if wanted > 1 and len(user.stages) != wanted:
        detail = f"pp {strategy.pp} x vpp {strategy.vpp} needs {wanted} stages, the factory gives {len(user.stages)}"
        return [Violation("factory_stages", detail, (f"{wanted} groups of submodule names in stages",))]
    if not user.stages:
        return []
    names = [name for group in user.stages for name in group]
    held = {name for name, _ in user.module.named_modules()}
    missing = [name for name in names if name not in held or not name]
    if missing:
        return [Violation("factory_stages", f"stages name {missing[0]!r:.80}, which is no submodule")]
    lists = [name for name in names if isinstance(user.module.get_submodule(name), CONTAINERS)]
    if lists:
        detail = f"stages name {lists[0]:.80}, a list of modules that cannot be called"
        return [Violation("factory_stages", detail, (f"its entries: {lists[0]:.80}.0 and so on",))]
    outside = [name for name, _ in user.module.named_parameters() if not _within(name, names)]
    if outside:
        return [Violation("factory_stages", f"parameter {outside[0]:.80} is in no stage; name its submodule")]
    return _equal_stages(user)


def _equal_stages(user: UserModel) -> list[Violation]:
    """The stages one after the other must compute what the module does; tried on a small module's example."""
    if user.example_batch is None or sum(p.numel() for p in user.module.parameters()) > CHECKED_PARAMETERS:
        return []
    example = user.example_batch
    x = example[0] if isinstance(example, Sequence) else example
    module = user.module.eval()
    with torch.no_grad():
        try:
            expected = _tensor(module(x))
            for group in user.stages:
                for name in group:
                    x = module.get_submodule(name)(x)
            found = _tensor(x)
        except Exception as error:  # whatever a user's code raises
            detail = f"the example batch does not run: {type(error).__name__}: {str(error)[:200]}"
            nearest = ("an example_batch that the module takes", "stages that take each other's outputs")
            return [Violation("factory_stages", detail, nearest)]
    module.train()
    if found.shape == expected.shape and torch.allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE):
        return []
    detail = "the stages' submodules called one after the other do not compute what the module does"
    return [
        Violation("factory_stages", detail, ("a module whose forward is its submodules in order", "pp 1"))
    ]


def _tensor(output: Any) -> Tensor:
    """A tensor, or the logits of an output object (transformers)."""
    found = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if not isinstance(found, Tensor):
        raise BadInput(
            f"the factory's model gave {type(output).__name__}; return a tensor, or an object with `logits`"
        )
    return found


def _within(parameter: str, names: Sequence[str]) -> bool:
    return any(parameter.startswith(f"{name}.") for name in names)


def _drop_others(module: nn.Module, kept: Sequence[str]) -> None:
    """Remove every submodule that holds none of the kept ones and is in none of them."""
    for name, part in [*module.named_modules()]:
        if not name or _within(f"{name}.", kept):
            continue
        if any(each == name or each.startswith(f"{name}.") for each in kept):
            continue
        parent, _, key = name.rpartition(".")
        holder = module.get_submodule(parent) if _has(module, parent) else None
        if holder is not None and holder._modules.get(key) is part:
            # Past the container's own deletion, which would number a ModuleList's entries anew.
            del holder._modules[key]


def _has(module: nn.Module, name: str) -> bool:
    try:
        module.get_submodule(name)
    except AttributeError:
        return False
    return True


def _mark_ties(module: nn.Module) -> None:
    """Note which parameters stand under several names, so that copies on several stages are kept in step."""
    names: dict[nn.Parameter, str] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if parameter in names:
            parameter.tie_name = names[parameter]  # type: ignore[attr-defined]
        names.setdefault(parameter, name)


def _plan(user: UserModel) -> dict[str, ParallelStyle]:
    return {pattern: STYLES[style]() for pattern, style in user.tp_plan.items()}


def _matches(pattern: str, names: set[str]) -> bool:
    """Whether a pattern of the plan (`*` stands for one part of a name) finds any submodule."""
    parts = pattern.split(".")
    return any(
        len(parts) == len(name.split("."))
        and all(part in ("*", own) for part, own in zip(parts, name.split("."), strict=True))
        for name in names
    )
