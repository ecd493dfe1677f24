"""Complete jobs for the executor's tests, from the values that matter."""

from typing import Any

from cost_models.specs.job import Job, JobOptions, Optimizer, Precision


def job(**values: Any) -> Job:
    """A small job of the torch engine."""
    defaults: dict[str, Any] = {
        "seq_len": 16,
        "decoder_seq_len": 16,
        "image_size": 0,
        "global_batch": 8,
        "precision": Precision.FP32,
        "optimizer": Optimizer.ADAMW,
        "engine": "torch",
        "engine_version": "",
        "options": JobOptions(),
        "engine_options": {},
    }
    return Job(**(defaults | values))
