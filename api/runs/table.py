"""A measured run as a table of one row, which `planner validate` and `planner calibrate` take."""

import base64
import csv
import io
import json
import zlib
from collections.abc import Mapping
from typing import Any, Final

TABLE: Final = "measured.csv"
GIB: Final = 1024**3
COLUMNS: Final = (
    "id",
    "source",
    "core",
    "model",
    "gpu",
    "n_gpus",
    "framework",
    "precision",
    "micro_batch",
    "global_batch",
    "step_time_s",
    "peak_memory_gib",
    "memory_kind",
    "order_zlib",
)


def table_of(run_id: str, order: bytes, report: Mapping[str, Any]) -> str:
    """The table. `order_zlib` holds the run's order.json (model, cluster, job, strategy), zlib in base64."""
    document = json.loads(order)
    request, strategy = document["request"], document["strategy"]
    spec, job = request["cluster"]["spec"], request["job"]
    device = spec["groups"][0]["device"]
    measured = report["measured"]
    values = {
        "id": run_id,
        "source": "own run",
        "core": "yes",
        "model": request["model"]["spec"].get("name", ""),
        "gpu": device if isinstance(device, str) else device.get("name", ""),
        "n_gpus": strategy["dp"] * strategy["tp"] * strategy["pp"] * strategy["cp"],
        "framework": job["engine"],
        "precision": job["precision"],
        "micro_batch": strategy["mbs"],
        "global_batch": job["global_batch"],
        "step_time_s": measured["step_s"],
        "peak_memory_gib": measured["peak_bytes"] / GIB,
        "memory_kind": "max allocated (GiB), max over ranks",
        "order_zlib": base64.b64encode(zlib.compress(json.dumps(document).encode(), 9)).decode("ascii"),
    }
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS)
    writer.writeheader()
    writer.writerow(values)
    return text.getvalue()
