"""A body of every call that takes one; the tests send each of them."""

from collections.abc import Mapping
from typing import Any, Final

_JOB: Final = {"seq_len": 4096, "global_batch": 64, "precision": "bf16", "engine": "megatron"}
_QUESTION: Final[Mapping[str, Any]] = {
    "model": {"kind": "catalog", "name": "llama-3.1-8b"},
    "cluster": {"kind": "preset", "name": "dgx-h100", "devices": 8},
    "job": _JOB,
}
_SOURCE: Final[Mapping[str, Any]] = {**_QUESTION, "strategy": "tp=2,pp=2,mbs=1"}

EXAMPLES: Final[Mapping[str, Mapping[str, Any]]] = {
    "/v1/plans": {**_QUESTION, "search": {"top_k": 3, "max_seconds": 60}, "name": "first", "tags": ["docs"]},
    "/v1/evaluations": {**_QUESTION, "strategies": ["tp=2,pp=2,mbs=1", {"tp": 8, "mbs": 1}]},
    "/v1/checks": {**_SOURCE, "max_memory_fraction": 0.9},
    "/v1/explanations": {**_SOURCE, "against": "tp=8", "max_seconds": 10},
    "/v1/comparisons": {"first": dict(_SOURCE), "second": {"strategy": "tp=8"}},
    "/v1/simulations": {**_SOURCE, "max_operations": 1000},
    "/v1/exports": {**_SOURCE, "format": "megatron"},
    "/v1/sizes": {
        "model": _QUESTION["model"],
        "clusters": [{"name": "h100", "cluster": {"kind": "preset", "name": "dgx-h100", "devices": 8}}],
        "job": _JOB,
        "search": {"run": {"tokens": 1e11, "deadline_s": 2_592_000}},
        "devices": [16, 32],
        "max_seconds": 30,
    },
    "/v1/inspections": {"model": _QUESTION["model"], "seq_len": 4096},
    "/v1/views": dict(_SOURCE),
}
