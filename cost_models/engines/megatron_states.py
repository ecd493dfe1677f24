"""What a parameter leaves on a Megatron-LM rank: weights in narrow or 16-bit types, main weights, moments."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cost_models.engines.group_bytes import DTYPE_BYTES, moment_bytes
from cost_models.engines.options import MegatronOptions
from cost_models.mesh import MeshBatch
from cost_models.operators.base import ParameterGroup
from cost_models.specs.job import Job, Optimizer, Precision
from cost_models.units import Num

NARROW_WEIGHT_BYTES: Final = {
    Precision.FP8: 1.0,
    Precision.MXFP8: 1.0 + 1.0 / 32,
    Precision.NVFP4: 0.5 + 1.0 / 16,
}
"""Bytes of a weight in a narrow type with its scales: one a tensor, a byte for 32 (MXFP8) or for 16 (NVFP4) elements
(Transformer Engine, pytorch/tensor)."""

MASTER_BYTES: Final = {"fp32": 4.0, "remainder": 2.0, "fp16": 2.0, "bf16": 2.0}
"""Main weights by `engine.master_dtype` (megatron/core/optimizer/optimizer_config.py, store_param_remainders)."""


def wide_bytes(job: Job, options: MegatronOptions) -> float:
    """Bytes of what is not in a narrow type: weights, activations, tables."""
    return DTYPE_BYTES["fp32"] if options.wide_dtype == "fp32" else job.precision.activation_bytes


def is_narrow(group: ParameterGroup, job: Job) -> bool:
    """Whether a group's products run in a narrow type: linears of blocks, not tables, heads, norms or biases."""
    return job.precision in NARROW_WEIGHT_BYTES and group.matrix and not group.rows


def weight_bytes(group: ParameterGroup, job: Job, options: MegatronOptions) -> float:
    """Bytes of a weight: 16 bits and its narrow copies, which stay from step to step (Transformer Engine,
    module/base.py, get_weight_workspace); the copies alone where parameters are narrow themselves."""
    wide = wide_bytes(job, options)
    if not is_narrow(group, job):
        return wide
    narrow = NARROW_WEIGHT_BYTES[job.precision]
    if options.fp8_param_gather:
        return narrow * max(options.fp8_weight_copies, 1)
    return wide + narrow * options.fp8_weight_copies


def gathered_bytes(group: ParameterGroup, job: Job, options: MegatronOptions) -> float:
    """Bytes of a weight as it travels: in 16 bits under MXFP8, whose two copies are scaled along other elements
    (--reuse-grad-buf-for-mxfp8-param-ag: every rank makes them from what it gathers)."""
    if options.fp8_param_gather and is_narrow(group, job) and job.precision is not Precision.MXFP8:
        return NARROW_WEIGHT_BYTES[job.precision]
    return wide_bytes(job, options)


def optimizer_bytes(group: ParameterGroup, job: Job, options: MegatronOptions) -> float:
    """Main weights and moments."""
    master = MASTER_BYTES[options.master_dtype] if wide_bytes(job, options) < 4.0 else 0.0
    moments = moment_bytes(group, job.optimizer, options.moment_dtype)
    if job.optimizer is Optimizer.ADAMW and options.second_moment_dtype != "same":
        moments += DTYPE_BYTES[options.second_moment_dtype] - DTYPE_BYTES[options.moment_dtype]
    return master + moments


def stepping_bytes(
    group: ParameterGroup, job: Job, options: MegatronOptions, meshes: MeshBatch, ways: Num
) -> NDArray[np.float64]:
    """Bytes a parameter that exist in the optimizer step alone.

    Narrow main gradients are copied to fp32 shards (distrib_optimizer.py, _copy_model_grads_to_main_grads). The
    precision-aware optimizer takes them as they are, and makes fp32 copies of all narrow moments that step together
    (transformer_engine/pytorch/optimizers/fused_adam.py, get_unscaled_state); experts step after the others.
    """
    flat = _flat_bytes(group, job, options)
    narrow = wide_bytes(job, options) < DTYPE_BYTES["fp32"]
    copied: Num = 0.0
    if is_precision_aware(options):
        wide = sum(DTYPE_BYTES["fp32"] for dtype in _moment_dtypes(options) if dtype != "fp32")
        copied = np.where((meshes.ep > 1) & (not group.is_expert), 0.0, wide)
    elif narrow and options.grad_dtype != "fp32":
        copied = DTYPE_BYTES["fp32"]
    return np.asarray(np.maximum(flat, copied / ways) + np.zeros(meshes.size), dtype=float)


def _flat_bytes(group: ParameterGroup, job: Job, options: MegatronOptions) -> float:
    """The flat copy of gradients of the data parallel of 2020, and what loss scaling keeps it from using again.

    Steps that a large loss scale skips run without moments, which come when activations have taken the memory: they lie
    in blocks of their own, and what they displaced stays reserved. A user's 2.6B GPT-2 held 19.2 GiB of tensors in 28.3
    reserved, 9.1 more, and had 9.2 of moments, when 2.29 for the flat copy were refused (Megatron-LM issue 60).
    """
    if not options.flat_all_reduce:
        return 0.0
    late = (
        moment_bytes(group, job.optimizer, options.moment_dtype) if job.precision is Precision.FP16 else 0.0
    )
    return DTYPE_BYTES[options.grad_dtype] + late


def is_precision_aware(options: MegatronOptions) -> bool:
    """Whether options ask for what --use-precision-aware-optimizer alone has."""
    return options.master_dtype != "fp32" or any(dtype != "fp32" for dtype in _moment_dtypes(options))


def _moment_dtypes(options: MegatronOptions) -> tuple[str, str]:
    second = options.second_moment_dtype
    return options.moment_dtype, options.moment_dtype if second == "same" else second
