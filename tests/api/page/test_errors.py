"""Everything that can go wrong is said in words, with where it is and what to do."""

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest

pytestmark = pytest.mark.system

Until = Callable[[Any, str], None]

ALERT = "#alert [role=alert]"
Open = Callable[..., Any]


def loaded(open_page: Open, url: str) -> Any:
    """The page with its first answer; the tests here provoke error answers, which the browser itself reports."""
    page = open_page(url, quiet=False)
    page.wait_for_selector("#accuracy")
    return page


def answer_with(page: Any, path: str, status: int, code: str, **headers: str) -> None:
    """Let the service answer a path with a problem."""
    body = {
        "type": f"/problems/{code}",
        "title": code,
        "status": status,
        "detail": f"about {code}",
        "request_id": "r1",
        "errors": [],
    }
    page.route(
        f"**{path}",
        lambda route: route.fulfill(
            status=status, body=json.dumps(body), content_type="application/problem+json", headers=headers
        ),
    )


def test_a_config_of_an_unknown_family_is_refused_with_its_pointer(open_page: Open, url: str) -> None:
    page = loaded(open_page, url)
    page.click('#form button[data-value="config"]')
    page.fill("#model-config", '{"model_type": "nothing-known", "hidden_size": 64}')
    page.click("#ask")
    page.wait_for_selector(ALERT)
    text = page.inner_text(ALERT)
    assert "nothing-known" in text
    assert "/model" in text
    assert page.get_attribute("#model-config", "aria-invalid") == "true"


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [
        ("#model-config", '{"model_type": ', "does not parse"),
        ("#model-config", "[1, 2]", "no JSON object"),
        ("#job-batch", "0", "whole number"),
        ("#job-batch", "1.5", "whole number"),
    ],
)
def test_a_field_that_cannot_be_read_is_named_before_anything_is_asked(
    open_page: Open, url: str, field: str, text: str, said: str
) -> None:
    page = loaded(open_page, url)
    if field == "#model-config":
        page.click('#form button[data-value="config"]')
    page.fill(field, text)
    page.click("#ask")
    assert said in page.inner_text(ALERT)
    assert page.get_attribute(field, "aria-invalid") == "true"


def test_an_infeasible_question_says_why_and_what_would_help(until: Until, open_page: Open, url: str) -> None:
    page = loaded(open_page, url)
    page.fill("#model-name", "llama-3.1-70b")
    page.fill("#cluster-devices", "2")
    page.fill("#job-batch", "8")
    page.click("#ask")
    until(page, "document.querySelector('#plan h2')?.textContent === 'Nothing fits'")
    text = page.inner_text("#plan")
    assert "GiB" in text
    relaxations = page.evaluate("planner.shown.plan.result.relaxations.map(each => each.change)")
    assert relaxations
    assert all(change in text for change in relaxations)


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (429, "too_many_requests", "The server is busy"),
        (503, "time_limit", "The server is busy"),
        (500, "internal_error", "The server failed"),
        (422, "illegal_strategy", "This cannot be planned"),
    ],
)
def test_refusals_of_the_service_are_said_in_words(
    open_page: Open, url: str, status: int, code: str, said: str
) -> None:
    page = loaded(open_page, url)
    answer_with(page, "/v1/plans", status, code, **({"Retry-After": "7"} if status in (429, 503) else {}))
    page.click("#ask")
    page.wait_for_selector(ALERT)
    text = page.inner_text(ALERT)
    assert said in text
    assert "r1" in text
    assert ("Ask again in 7 s" in text) == (status in (429, 503))
    assert page.is_enabled("#ask")


def test_a_server_that_is_gone_is_said_and_asked_again(until: Until, open_page: Open, url: str) -> None:
    page = loaded(open_page, url)
    page.route("**/v1/**", lambda route: route.abort("connectionrefused"))
    page.click("#ask")
    page.wait_for_selector(ALERT)
    assert "does not answer" in page.inner_text(ALERT)
    page.unroute("**/v1/**")
    page.click(f"{ALERT} button")
    until(page, "!planner.shown.stored")


def test_a_search_can_be_stopped(open_page: Open, url: str) -> None:
    page = loaded(open_page, url)
    page.fill("#model-name", "deepseek-v3")
    page.locator("#cluster-name").select_option("dgx-h800")
    page.fill("#cluster-devices", "2048")
    page.fill("#job-seq", "4096")
    page.fill("#job-batch", "15360")
    page.click("#ask")
    page.click("#stop")
    page.wait_for_selector("#alert >> text=The search was stopped")
    assert page.is_enabled("#ask")


def test_a_search_that_fails_says_why(open_page: Open, url: str) -> None:
    page = loaded(open_page, url)
    failed = {
        **page.evaluate("planner.shown.plan"),
        "state": "failed",
        "result": None,
        "problem": {
            "type": "/problems/memory_limit",
            "status": 500,
            "detail": "the search took 8 GiB",
            "errors": [],
        },
    }
    page.route("**/v1/plans", lambda route: route.fulfill(status=200, json=failed))
    page.click("#ask")
    page.wait_for_selector(ALERT)
    assert "failed" in page.inner_text(ALERT)


def test_a_server_with_keys_asks_for_one_and_then_answers(
    until: Until, open_page: Open, serve_page: Open
) -> None:
    from api.keys import FileKey

    key = "a key that is long enough"
    file_keys = (FileKey(sha256=sha256(key.encode()).hexdigest(), scope="run"),)
    with serve_page(file_keys=file_keys) as address:
        page = open_page(address, quiet=False)
        page.wait_for_selector("#key")
        assert "wants a key" in page.inner_text(ALERT)
        assert page.locator("#plan").count() == 1  # the stored answer needs none
        page.fill("#key", key)
        page.keyboard.press("Enter")
        until(page, "document.querySelectorAll('#models option').length > 10")
        page.wait_for_selector(ALERT, state="detached")
        page.context.close()


def test_a_server_without_runs_says_so(open_page: Open, url: str) -> None:
    page = open_page(url, quiet=False)
    answer_with(page, "/v1/runs*", 409, "runs_disabled")
    page.reload()
    page.wait_for_selector("#runs-off")
    assert "planner run plan.json" in page.inner_text("#runs-off")
