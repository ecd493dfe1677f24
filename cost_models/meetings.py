"""Where all ranks of a pipeline stage wait for each other in every micro-batch: scales of fp8 with delayed scaling."""

from typing import Final

import numpy as np

from cost_models.communication import Network, Span, collective_seconds
from cost_models.engines.options import EngineOptions, MegatronOptions
from cost_models.mesh import MeshBatch
from cost_models.operators.base import Collective
from cost_models.overlap import expected_maximum_factor
from cost_models.specs.job import Job, Precision

SCALES_BYTES: Final = 4096.0
"""Largest absolute values of the tensors of a chunk, in fp32; so few that only the latency counts."""

JITTER_S: Final = 1e-4
"""[Empirical] standard deviation of a rank's arrival at a meeting, seconds: from 64 or 128 to 2,048 H100 a step in fp8
with delayed scaling grows by more seconds than one in bf16, by 0.15 s in GPT-3's 1,536 meetings, 0.12 s in the 640 of
Llama-3-70B, 0.10 s in the 384 of Nemotron-4-340B, and by none in the 8 of Nemotron-4-15B (profiles/published, dgxc)."""


def meeting_seconds(meshes: MeshBatch, network: Network, options: EngineOptions, job: Job) -> np.ndarray:
    """Seconds that every forward and every backward of a chunk spends on one meeting of its stage's ranks, (B,).

    None without delayed scaling.

    Transformer Engine reduces the amax history over tensor, context and data parallel ranks when the outermost
    autocast ends, and in the backward of its first module (pytorch/quantization.py, reduce_and_update_fp8_tensors): the
    latency of a small all-reduce, and the wait for the last of N ranks, JITTER_S x z(N) (`expected_maximum_factor`).
    """
    delayed = isinstance(options, MegatronOptions) and options.fp8_recipe == "delayed"
    if not delayed or job.precision is not Precision.FP8:
        return np.zeros(meshes.size)
    ranks = meshes.tp * meshes.cp * meshes.dp
    group = Span(ranks, np.ones_like(ranks))
    arrivals = expected_maximum_factor(ranks.astype(float), 1.0)
    latency_s = collective_seconds(Collective.ALL_REDUCE, SCALES_BYTES, group, network)
    last_s = JITTER_S * (arrivals - 1.0)
    return np.broadcast_to(np.where(ranks > 1, latency_s + last_s, 0.0), (meshes.size,))
