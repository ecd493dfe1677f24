"""RMSNorm and LayerNorm, over the stream or over the heads of queries and keys."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from cost_models.errors import BadInput
from cost_models.operators import Norm
from planner.executor.model.operators.rms import rms_norm
from planner.executor.model.operators.site import Site
from planner.executor.model.parameters import Initial, ones, zeros
from planner.executor.model.tensor_parallel import local, shared_sum


class NormModule(nn.Module):
    """Normalises the last `width` features, or each group of `width` (heads); wider inputs are cut to `width`."""

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(self, operator: Norm, site: Site) -> None:
        super().__init__()
        self.kind, self.width = operator.kind, operator.width
        self.by_head = operator.sharded
        self.tp = site.tp
        self.over_ranks = operator.sharded and operator.groups == 1 and site.tp.size > 1
        if self.over_ranks and operator.kind != "rms":
            raise BadInput(
                f"{operator.name} takes the mean over all heads at once, which tp {site.tp.size} divides; use tp 1"
            )
        self.own_weights = not operator.shared_weight
        self.eps = site.semantics.norm_eps
        self.offset = site.semantics.norm_offset
        shape = (operator.width,) if operator.shared_weight else (operator.groups, operator.width)
        shard = 0 if operator.sharded and self.own_weights else None
        partial = shard is None and (operator.sharded or site.tp.splits_sequence)
        first = zeros if self.offset else ones
        weight = Initial(shape, first, shard, partial=partial)
        bias = Initial(shape, zeros, shard, partial=partial)
        self.weight = site.maker.make("weight", weight) if operator.weight else None
        self.bias = site.maker.make("bias", bias) if operator.bias else None

    def forward(self, x: Tensor) -> Tensor:
        """[..., features] -> the same, or [..., width] where the input is wider."""
        if self.over_ranks:
            return self._over_ranks(x)
        if not self.by_head:
            return self._normalise(x if x.shape[-1] == self.width else x[..., : self.width])
        return self._normalise(x.reshape(*x.shape[:-1], -1, self.width)).flatten(-2)

    def _over_ranks(self, x: Tensor) -> Tensor:
        """RMSNorm over the features of all ranks, of which this one has a part (queries or keys of OLMo 2)."""
        wide = x.float()
        mean_square = shared_sum(wide.square().sum(-1, keepdim=True), self.tp) / self.width
        out = wide * torch.rsqrt(mean_square + self.eps)
        if self.weight is not None:
            own = local(self.weight).narrow(0, self.tp.rank * x.shape[-1], x.shape[-1])
            out = out * (own + self.offset)
        return out.to(x.dtype)

    def _normalise(self, x: Tensor) -> Tensor:
        weight = None if self.weight is None else local(self.weight)
        bias = None if self.bias is None else local(self.bias)
        if weight is not None and self.offset:
            weight = weight + self.offset
        if self.own_weights and weight is not None:
            plain = self._plain(x, None, None)
            return plain * weight if bias is None else torch.addcmul(bias, plain, weight)
        return self._plain(x, weight, bias)

    def _plain(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        if self.kind == "rms":
            return rms_norm(x, weight, self.eps)
        return functional.layer_norm(x, (self.width,), weight, bias, self.eps)
