"""A plan over HTTP for real: a search process, health beside it, and the answer used again."""

import asyncio
import time
from typing import Any

import httpx2
import pytest

from api.app import create_app
from api.settings import Settings

pytestmark = pytest.mark.slow

HEALTH_S = 0.5
"""Far below the time of a search; a blocked event loop would take as long as the search."""


def test_a_plan_is_searched_while_health_answers(question: dict[str, Any]) -> None:
    async def story() -> tuple[httpx2.Response, float, httpx2.Response]:
        transport = httpx2.ASGITransport(app=create_app(Settings()))
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://localhost", timeout=120
        ) as client:
            searching = asyncio.create_task(client.post("/v1/plans", json=question))
            slowest_s = 0.0
            while not searching.done():
                began = time.monotonic()
                assert (await client.get("/healthz")).status_code == 200
                slowest_s = max(slowest_s, time.monotonic() - began)
                await asyncio.sleep(0.02)
            answer = await searching
            check = await client.post("/v1/checks", json={"plan_id": answer.json()["id"]})
        return answer, slowest_s, check

    answer, slowest_s, check = asyncio.run(story())
    assert answer.status_code == 200, answer.text
    plan = answer.json()
    assert plan["result"]["status"] == "optimal"
    best = plan["result"]["best"]
    assert plan["progress"]["best_step_s"] == best["step_s"]
    assert slowest_s < HEALTH_S
    assert check.json()["passed"] is True
    assert check.json()["step_s"] == best["step_s"]
