"""Linear layers: column-parallel, row-parallel and replicated, one parameter per part."""

from torch import Tensor, nn

from cost_models.operators import Linear
from planner.executor.model.operators.site import Site
from planner.executor.model.parameters import Initial, zeros
from planner.executor.model.tensor_parallel import leave, local
from planner.executor.weight_gradients import CanDefer, linear


class LinearModule(CanDefer):
    """One output per part. A column-parallel one takes a tensor that has entered the region; a row-parallel one leaves
    it, and adds its bias once after the sum. What adapters of parts give is added to the rank's own product."""

    def __init__(self, operator: Linear, site: Site) -> None:
        super().__init__()
        self.adapters: nn.ModuleDict | None = None
        self.split = operator.split
        self.tp = site.tp
        self.names = tuple(part.name for part in operator.parts)
        self.biased = tuple(operator.bias and name not in operator.unbiased for name in self.names)
        shard = {"column": 0, "row": 1, "replicated": None}[operator.split]
        sliced = site.tp.splits_sequence and not operator.per_sample
        for part, biased in zip(operator.parts, self.biased, strict=True):
            weight = Initial(
                (part.features, operator.in_features), shard=shard, partial=shard is None and sliced
            )
            setattr(self, part.name, site.maker.make(part.name, weight))
            if biased:
                bias = Initial(
                    (part.features,), zeros, 0 if shard == 0 else None, partial=shard != 0 and sliced
                )
                setattr(self, bias_name(part.name), site.maker.make(bias_name(part.name), bias))

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        """[..., in] -> [..., features] of each part."""
        outputs = tuple(
            self._part(x, name, biased) for name, biased in zip(self.names, self.biased, strict=True)
        )
        return outputs if len(outputs) > 1 else outputs[0]

    def _part(self, x: Tensor, name: str, biased: bool) -> Tensor:
        weight = local(getattr(self, name))
        bias = local(getattr(self, bias_name(name))) if biased else None
        if self.split != "row" or self.tp.size == 1:
            return self._adapted(linear(x, weight, bias, self.weight_gradients), x, name)
        out = leave(self._adapted(linear(x, weight, None, self.weight_gradients), x, name), self.tp)
        return out if bias is None else out + bias

    def _adapted(self, out: Tensor, x: Tensor, name: str) -> Tensor:
        if self.adapters is None or name not in self.adapters:
            return out
        added: Tensor = self.adapters[name](x)
        # In place: out is this call's own, and no backward reads it.
        return out.add_(added)


def bias_name(part: str) -> str:
    """Name of a part's bias beside its weight."""
    return "bias" if part == "weight" else f"{part}_bias"
