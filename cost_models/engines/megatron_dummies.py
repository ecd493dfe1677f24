"""Empty weight gradients that Transformer Engine keeps under fused gradient accumulation.

The fused product writes a weight's gradient into the main gradient, and autograd is handed an empty tensor of the
weight's shape in its place. Since release 2.3 these are cached for the whole run, one for each shape and dtype
(transformer_engine/pytorch/module/base.py, get_dummy_wgrad); since 2.10 for grouped linears too.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from cost_models.mesh import MeshBatch
from cost_models.operators import GroupedLinear, Linear
from cost_models.specs.job import Job
from cost_models.specs.model import ModelSpec, Role
from cost_models.units import Num

Shape = tuple[object, ...]


def empty_gradient_bytes(model: ModelSpec, job: Job, meshes: MeshBatch) -> NDArray[np.float64]:
    """Bytes of one empty gradient for every shape of linear in a model's layers, on a rank of every mesh.

    Shapes of prediction layers alone, which stand on the last stage only, are left out.
    """
    shapes = dict(_linears(model, meshes))
    total = np.zeros(meshes.size)
    for elements in shapes.values():
        total = total + elements
    return total * job.precision.activation_bytes


def _linears(model: ModelSpec, meshes: MeshBatch) -> Iterator[tuple[Shape, Num]]:
    """Shape and local elements of every trained linear; two that divide alike have one shape on a rank."""
    for kind in sorted({layer.kind for layer in model.layers if layer.role is not Role.MTP}):
        for op in model.kinds[kind].operators:
            if op.frozen:
                continue
            if isinstance(op, Linear) and not op.fp32:
                yield (op.in_features, op.out_features, op.split), _local(op, meshes)
            elif isinstance(op, GroupedLinear):
                shape = (op.in_features, op.out_features, "expert", op.split)
                yield shape, op.in_features * op.out_features / meshes.etp


def _local(op: Linear, meshes: MeshBatch) -> Num:
    """Elements of a linear's weight on a rank."""
    if op.split == "replicated":
        return float(op.in_features * op.out_features)
    if op.split == "row":
        return op.in_features * op.out_features / meshes.tp
    total: Num = 0.0
    for part in op.parts:
        ways = np.minimum(meshes.tp, part.max_shards) if part.max_shards else meshes.tp
        total = total + op.in_features * part.features / ways
    return total
