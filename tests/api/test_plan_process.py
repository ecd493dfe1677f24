"""A plan over HTTP for real: a search process, health beside it, and the answer used again."""

import asyncio
from typing import Any

import httpx2
import pytest

from api.app import create_app
from api.settings import Settings

pytestmark = pytest.mark.slow


def test_a_plan_is_searched_while_health_answers(question: dict[str, Any]) -> None:
    app = create_app(Settings())

    async def story() -> tuple[dict[str, Any], int, httpx2.Response]:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://localhost", timeout=120
        ) as client:
            created = await client.post("/v1/plans", json=question, headers={"prefer": "wait=0"})
            path, num_healthy = created.headers["location"], 0
            while (plan := (await client.get(path)).json())["ended_at"] is None:
                assert (await client.get("/healthz")).status_code == 200
                num_healthy += 1
                await asyncio.sleep(0.02)
            check = await client.post("/v1/checks", json={"plan_id": plan["id"]})
        return plan, num_healthy, check

    try:
        plan, num_healthy, check = asyncio.run(story())
    finally:
        app.state.jobs.stop()
        app.state.database.close()
    assert plan["result"]["status"] == "optimal", plan["problem"]
    best = plan["result"]["best"]
    assert plan["progress"]["best_step_s"] == best["step_s"]
    assert num_healthy > 3  # a blocked event loop would answer once, after the search
    assert check.json()["passed"] is True
    assert check.json()["step_s"] == best["step_s"]


@pytest.mark.matrix
def test_a_search_is_cancelled_while_it_runs_and_equal_questions_get_equal_answers(
    question: dict[str, Any],
) -> None:
    app = create_app(Settings())
    long = {
        "model": {"kind": "catalog", "name": "llama-3.1-70b"},
        "cluster": {"kind": "preset", "name": "dgx-h100", "devices": 64},
        "job": {"seq_len": 8192, "global_batch": 512, "engine": "torch"},
        "search": {"gap": 0.0, "max_seconds": 600.0},
    }

    async def story() -> tuple[dict[str, Any], list[dict[str, Any]]]:
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://localhost", timeout=120
        ) as client:
            created = await client.post("/v1/plans", json=long, headers={"prefer": "wait=0"})
            links = created.json()["links"]
            while (await client.get(links["self"])).json()["progress"]["meshes_total"] in (None, 0):
                await asyncio.sleep(0.02)
            assert (await client.post(links["cancel"])).status_code == 202
            while app.state.jobs.num_tasks:
                await asyncio.sleep(0.02)
            ended = (await client.get(links["self"])).json()
            wait = {"prefer": "wait=100"}
            answers = [(await client.post("/v1/plans", json=question, headers=wait)).json() for _ in range(2)]
        return ended, answers

    try:
        ended, answers = asyncio.run(story())
    finally:
        app.state.jobs.stop()
        app.state.database.close()
    assert (ended["state"], ended["result"]) == ("cancelled", None)
    assert answers[0]["id"] != answers[1]["id"]
    for answer in answers:
        del answer["result"]["certificate"]["wall_s"]
    assert answers[0]["result"] == answers[1]["result"]
