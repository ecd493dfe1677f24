"""Elements of a parameter group on one rank, and what an optimizer keeps for each of them."""

import numpy as np

from cost_models.mesh import MeshBatch
from cost_models.operators.base import ParameterGroup, Split, Style, padded_vocabulary
from cost_models.specs.job import Optimizer
from cost_models.units import Num

DTYPE_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0}


def local_elements(group: ParameterGroup, meshes: MeshBatch, style: Style) -> Num:
    """Elements of a group on one rank after tensor, vocabulary or expert division."""
    tp = meshes.tp.astype(float)
    if group.split is Split.TP:
        return group.elements / (np.minimum(tp, group.max_shards) if group.max_shards else tp)
    if group.split is Split.VOCABULARY:
        return padded_vocabulary(group.rows, tp, style) * (group.elements / group.rows) / tp
    if group.split is Split.EXPERT:
        return group.elements / (meshes.ep * meshes.etp)
    return np.full(meshes.size, float(group.elements))


BLOCK_ELEMENTS = 256
"""Elements of a block of the 8-bit optimizers that share a scale (Dettmers et al. 2022 use 2,048 on GPUs of the time;
bitsandbytes since 0.44 and this project's own optimizer 256)."""


def moment_bytes(group: ParameterGroup, optimizer: Optimizer, moment_dtype: str) -> float:
    """Bytes per parameter of the optimizer's moments, without the fp32 master copy.

    AdamW: two moments. 8-bit Adam: two bytes and an fp32 scale a block for each moment (Dettmers et al. 2022). SGD: one
    momentum. Muon: one momentum for matrices, AdamW's two moments for embeddings, heads, norms and biases (Jordan et
    al. 2024). Adafactor: the factored second moment of a matrix is two vectors, counted as nothing; vectors keep one.
    """
    each = DTYPE_BYTES[moment_dtype]
    is_table = group.split is Split.VOCABULARY or bool(group.rows)
    match optimizer:
        case Optimizer.ADAM8BIT:
            return 2.0 + 2.0 * 4.0 / BLOCK_ELEMENTS
        case Optimizer.MUON:
            return each if group.matrix and not is_table else 2.0 * each
        case Optimizer.ADAFACTOR:
            return 0.0 if group.matrix or is_table else each
        case Optimizer.SGD:
            return each
    return 2.0 * each
