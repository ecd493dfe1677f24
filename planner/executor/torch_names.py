"""Collectives of one tensor under the names that the installed torch knows: 2.13 renamed them."""

import torch.distributed as dist

GATHER = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
REDUCE_SCATTER = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
