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
from cost_models.roofline.kernel_table import KernelTable, RowGroup, stack_kernels
from cost_models.roofline.price import gemm_efficiency, kernel_seconds, optimizer_seconds, precision_of

__all__ = [
    "AttentionCurve",
    "Efficiency",
    "GemmCurve",
    "KernelTable",
    "RowGroup",
    "Scale",
    "efficiency_from_file",
    "gemm_efficiency",
    "kernel_seconds",
    "load_efficiency",
    "optimizer_seconds",
    "precision_of",
    "read_efficiency",
    "stack_kernels",
]
