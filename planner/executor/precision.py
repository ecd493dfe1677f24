"""What a precision means for the tensors of a run: the dtype of computing; reductions and masters are fp32."""

import torch

from cost_models.errors import BadInput
from cost_models.specs.job import Precision

REDUCE_DTYPE = torch.float32
MASTER_DTYPE = torch.float32

_COMPUTE = {Precision.FP32: torch.float32, Precision.TF32: torch.float32, Precision.BF16: torch.bfloat16}


def compute_dtype(precision: Precision) -> torch.dtype:
    """Dtype of activations and of the weights in use; raises BadInput for a precision that is not run here."""
    if precision not in _COMPUTE:
        runs = ", ".join(_COMPUTE)
        raise BadInput(
            f"precision {precision.value} is not run by this executor; use one of {runs}",
            pointer="/job/precision",
            allowed=tuple(_COMPUTE),
        )
    return _COMPUTE[precision]


def apply_matmul_precision(precision: Precision) -> None:
    """Let fp32 matrix multiplications of this process use tf32 units, or forbid it."""
    torch.set_float32_matmul_precision("high" if precision is Precision.TF32 else "highest")
