"""What a Megatron-LM rank allocates beside states and activations: workspaces of the GEMM libraries, one score buffer.

With the states these are what the test runs of Megatron-Core keep between steps (`mem_allocated_bytes` in
profiles/published/megatron_ci.json), on A100, H100 and GB200, deterministic or not, with and without Transformer Engine
and grouped GEMMs: the median difference is 13 MiB, and fp16 runs keep fp32 gradients beside.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cost_models.engines.options import MegatronOptions
from cost_models.mesh import MeshBatch
from cost_models.specs.model import ModelSpec
from cost_models.units import MIB

CUBLAS_HANDLES: Final = 2
"""Threads that multiply matrices, each with a handle and a workspace: the main one and autograd's (torch,
aten/src/ATen/cuda/CublasHandlePool.cpp)."""

CUBLAS_LARGE_BYTES: Final = 32 * MIB
"""A handle's workspace since Hopper (torch, getChosenWorkspaceSize), and with CUBLAS_WORKSPACE_CONFIG=:4096:8, which
--deterministic-mode asks for."""

CUBLAS_SMALL_BYTES: Final = 8.125 * MIB
"""A handle's workspace on older devices: 2 x 4096 KiB and 8 x 16 KiB (torch, getChosenWorkspaceSize)."""

ENGINE_LARGE_BYTES: Final = 32 * MIB
ENGINE_SMALL_BYTES: Final = 4 * MIB
"""Transformer Engine's own cuBLAS workspace since Hopper and before (pytorch/module/base.py,
get_cublas_workspace_size_bytes)."""

GROUPED_STREAMS: Final = 4
"""Streams of Transformer Engine's grouped GEMM, each with a workspace (get_multi_stream_cublas_workspace)."""

OVERLAP_STREAMS: Final = 3
"""Streams that overlapped tensor-parallel GEMMs run on, each with a workspace (pytorch/module/base.py,
initialize_ub: the workspace repeated _NUM_MAX_UB_STREAMS times)."""

OVERLAP_BUFFERS: Final = 10
"""Buffers of tokens x hidden of initialize_ub: four linears forward, four input and two weight gradients."""

RECENT: Final = ("hopper", "blackwell")


def workspace_bytes(architecture: str, model: ModelSpec, options: MegatronOptions) -> float:
    """Bytes of the GEMM libraries' workspaces on one rank."""
    recent = architecture in RECENT
    handle = CUBLAS_LARGE_BYTES if recent or options.deterministic else CUBLAS_SMALL_BYTES
    total = CUBLAS_HANDLES * handle
    if options.transformer_impl == "transformer_engine":
        streams = GROUPED_STREAMS if model.is_moe and options.grouped_gemm else 0
        streams += OVERLAP_STREAMS - 1 if options.tp_comm_overlap else 0
        total += (1 + streams) * (ENGINE_LARGE_BYTES if recent else ENGINE_SMALL_BYTES)
    return total


def score_buffer_bytes(
    model: ModelSpec, seq_len: int, compute_bytes: float, meshes: MeshBatch
) -> NDArray[np.float64]:
    """The buffer that all layers of the local implementation multiply queries and keys into: scores of one layer.

    Source: megatron/core/transformer/dot_product_attention.py, get_global_memory_buffer.
    """
    heads = model.num_attention_heads / meshes.tp
    return np.asarray(meshes.mbs * heads * float(seq_len) ** 2 * compute_bytes, dtype=float)


def overlap_buffer_bytes(
    model: ModelSpec, seq_len: int, compute_bytes: float, meshes: MeshBatch
) -> NDArray[np.float64]:
    """Communication buffers of --tp-comm-overlap, each of a micro-batch's whole hidden state; none where tp is 1."""
    each = meshes.mbs * (seq_len / meshes.cp) * model.hidden_size * compute_bytes
    return np.where(meshes.tp > 1, OVERLAP_BUFFERS * each, 0.0)
