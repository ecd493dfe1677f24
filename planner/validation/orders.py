"""Rows of this project's own runs: a column holds model, cluster, job and strategy, so that nothing is guessed."""

import base64
import binascii
import json
import zlib
from typing import Any, Final

from cost_models.specs.strategy import StrategyRequest, strategy_from_mapping
from planner.request import PlanRequest
from planner.situation import Situation, resolve
from planner.validation.rows import Run, Unusable

ORDER: Final = "order_zlib"
"""The column: a run's order.json, compressed by zlib, in base64."""
MOST_BYTES: Final = 64 * 1024**2


def order_of_run(run: Run) -> tuple[Situation, StrategyRequest]:
    """What a run was given; raises Unusable where the column holds no order."""
    try:
        document = _document(run.text(ORDER))
        request = PlanRequest.model_validate(document["request"])
        strategy = strategy_from_mapping(document["strategy"])
    except (binascii.Error, zlib.error, KeyError, TypeError, ValueError) as error:
        what = " ".join(str(error).split())[:200]
        raise Unusable(f"{ORDER} holds no order of a run ({what})") from None
    return resolve(request.model, request.cluster, request.job, reader="plain"), strategy


def _document(text: str) -> dict[str, Any]:
    unpacked = zlib.decompressobj()
    raw = unpacked.decompress(base64.b64decode(text, validate=True), MOST_BYTES)
    if unpacked.unconsumed_tail:
        raise ValueError(f"it unpacks to more than {MOST_BYTES:,} bytes")
    document = json.loads(raw)
    if not isinstance(document, dict):
        raise TypeError("it is no JSON object")
    return document
