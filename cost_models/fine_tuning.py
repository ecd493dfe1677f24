"""A model whose weights are frozen but for what a job trains: adapters put in, everything else marked."""

from typing import Final, Literal

from cost_models.errors import InvalidJob
from cost_models.operators import AnyOperator, GroupedLinear, Linear, LoraAdapter
from cost_models.specs.model import LayerKind, ModelSpec, RecomputeScope, Role
from cost_models.specs.trainable import Trainable

NF4_BYTES: Final = 0.5 + 1.0 / 64 + 4.0 / (64 * 256)
"""Bytes of a 4-bit weight with doubly quantised scales: one byte for 64 weights, one fp32 for 256 of those (Dettmers et
al. 2023, section 3)."""

VISION: Final = ("vision", "image", "visual")


def fine_tuned(model: ModelSpec, trainable: Trainable) -> ModelSpec:
    """The model that is trained; raises InvalidJob where the job names what the model does not have."""
    if trainable.kind == "all":
        return model
    if trainable.kind == "frozen":
        return _freeze_vision(model)
    model = without_adapters(model)
    blocks = {layer.kind for layer in model.layers if layer.role in (Role.BLOCK, Role.MTP)}
    below = {layer.kind for layer in model.layers if layer.role in (Role.EMBEDDING, Role.CONNECTOR)}
    kinds = {
        name: _adapt(kind, trainable)
        if name in blocks
        else _freeze(kind, "whole" if name in below else "weights")
        for name, kind in model.kinds.items()
    }
    if not any(isinstance(op, LoraAdapter) for kind in kinds.values() for op in kind.operators):
        names = sorted({name for kind in model.kinds.values() for name in _linear_names(kind)})
        raise InvalidJob(
            f"{model.name} has none of the linears {'+'.join(trainable.targets)}; name some of {', '.join(names)}",
            pointer="/job/options/job.trainable",
            allowed=tuple(names),
        )
    return model.model_copy(update={"kinds": kinds})


def without_adapters(model: ModelSpec) -> ModelSpec:
    """The model as it is without the adapters that a job put in; what is frozen stays marked."""
    names = {op.name for kind in model.kinds.values() for op in kind.operators if isinstance(op, LoraAdapter)}
    if not names:
        return model
    kinds = {name: _without(kind, names) for name, kind in model.kinds.items()}
    return model.model_copy(update={"kinds": kinds})


def _without(kind: LayerKind, names: set[str]) -> LayerKind:
    scopes = tuple(
        scope.model_copy(update={"operators": tuple(name for name in scope.operators if name not in names)})
        for scope in kind.scopes
    )
    operators = tuple(op for op in kind.operators if not isinstance(op, LoraAdapter))
    return kind.model_copy(update={"operators": operators, "scopes": scopes})


def _freeze_vision(model: ModelSpec) -> ModelSpec:
    """The vision tower without any backward pass; connectors are trained."""
    towers = {stack.name for stack in model.stacks if any(word in stack.name for word in VISION)}
    frozen = {layer.kind for layer in model.layers if layer.stack in towers and layer.role is Role.BLOCK}
    frozen |= {layer.kind for layer in model.layers if layer.stack in towers and layer.role is Role.EMBEDDING}
    trained = {layer.kind for layer in model.layers if layer.stack not in towers}
    if not frozen - trained:
        raise InvalidJob(
            f"job.trainable=frozen:vision, but {model.name} has no vision tower; use all",
            pointer="/job/options/job.trainable",
            allowed=("all",),
        )
    kinds = {
        name: _freeze(kind, "whole") if name in frozen - trained else kind
        for name, kind in model.kinds.items()
    }
    return model.model_copy(update={"kinds": kinds})


def _freeze(kind: LayerKind, how: Literal["weights", "whole"]) -> LayerKind:
    operators = tuple(op.model_copy(update={"frozen": how}) for op in kind.operators)
    return kind.model_copy(update={"operators": operators})


def _adapt(kind: LayerKind, trainable: Trainable) -> LayerKind:
    """Frozen operators, each adapted linear followed by its adapter, which is recomputed with it."""
    storage = NF4_BYTES if trainable.kind == "qlora" else 0.0
    operators: list[AnyOperator] = []
    beside: dict[str, str] = {}
    for op in kind.operators:
        is_linear = isinstance(op, Linear | GroupedLinear)
        operators.append(
            op.model_copy(update={"frozen": "weights", "storage_bytes": storage if is_linear else 0.0})
        )
        adapter = _adapter(op, trainable) if isinstance(op, Linear | GroupedLinear) else None
        if adapter is not None:
            operators.append(adapter)
            beside[op.name] = adapter.name
    scopes = tuple(
        RecomputeScope(
            name=scope.name,
            operators=(*scope.operators, *(beside[name] for name in scope.operators if name in beside)),
            gives_up=scope.gives_up,
        )
        for scope in kind.scopes
    )
    return kind.model_copy(update={"operators": tuple(operators), "scopes": scopes})


def _adapter(op: Linear | GroupedLinear, trainable: Trainable) -> LoraAdapter | None:
    """The adapter of a linear, for the parts that are targets; None where there are none."""
    wanted = {name.removesuffix("_proj") for name in trainable.targets}
    if isinstance(op, GroupedLinear):
        if wanted and op.name not in wanted:
            return None
        return LoraAdapter(
            name=f"{op.name}_lora",
            inputs=op.inputs,
            rank=trainable.rank,
            in_features=op.in_features,
            parts=(op.out_features,),
            split=op.split,
            experts=op.experts,
            top_k=op.top_k,
        )
    parts = tuple(p.features for p in op.parts if not wanted or op.name in wanted or p.name in wanted)
    if not parts:
        return None
    return LoraAdapter(
        name=f"{op.name}_lora",
        inputs=op.inputs,
        rank=trainable.rank,
        in_features=op.in_features,
        parts=parts,
        split=op.split,
    )


def _linear_names(kind: LayerKind) -> set[str]:
    linears = [op for op in kind.operators if isinstance(op, Linear | GroupedLinear)]
    parts = {part.name for op in linears if isinstance(op, Linear) for part in op.parts}
    return ({op.name for op in linears} | parts) - {"weight"}
