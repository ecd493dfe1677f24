"""Kernels to seconds: efficiency curves by shape and precision, bandwidth by bytes, a floor a launch."""

from cost_models.roofline.efficiency import (
    AttentionCurve,
    Efficiency,
    GemmCurve,
    Scale,
    efficiency_from_file,
    load_efficiency,
    read_efficiency,
)
from cost_models.roofline.generations import (
    Generation,
    Uncertainty,
    efficiency_of,
    load_generation,
    load_uncertainty,
)
from cost_models.roofline.kernel_table import KernelTable, RowGroup, stack_kernels
from cost_models.roofline.measured import COPY, MeasuredKernels, measured_kernels
from cost_models.roofline.price import (
    gemm_efficiency,
    group_columns,
    kernel_seconds,
    measured_curve,
    memory_seconds,
    optimizer_seconds,
    precision_of,
)

__all__ = [
    "COPY",
    "AttentionCurve",
    "Efficiency",
    "GemmCurve",
    "Generation",
    "KernelTable",
    "MeasuredKernels",
    "RowGroup",
    "Scale",
    "Uncertainty",
    "efficiency_from_file",
    "efficiency_of",
    "gemm_efficiency",
    "group_columns",
    "kernel_seconds",
    "load_efficiency",
    "load_generation",
    "load_uncertainty",
    "measured_curve",
    "measured_kernels",
    "memory_seconds",
    "optimizer_seconds",
    "precision_of",
    "read_efficiency",
    "stack_kernels",
]
