"""Plans that are kept: idempotency keys, names and tags, lists with filters and pages."""

from typing import Any

from fastapi.testclient import TestClient

WAIT = {"prefer": "wait=30"}


def test_a_key_given_twice_names_the_same_plan(answering: TestClient, question: dict[str, Any]) -> None:
    key = {"idempotency-key": "once", **WAIT}
    first = answering.post("/v1/plans", json=question, headers=key)
    assert "idempotency-replayed" not in first.headers
    # the same request in another spelling: key order and white space say nothing
    again = answering.post("/v1/plans", json=dict(reversed(question.items())), headers=key)
    assert again.json()["id"] == first.json()["id"]
    assert again.headers["idempotency-replayed"] == "true"
    other = answering.post("/v1/plans", json={**question, "name": "other"}, headers=key)
    assert (other.status_code, other.json()["type"]) == (409, "/problems/idempotency_conflict")
    answering.delete(first.json()["links"]["self"])
    fresh = answering.post("/v1/plans", json=question, headers=key)
    assert fresh.json()["id"] != first.json()["id"]  # a deleted plan is not answered again


def test_names_and_tags_change_only_for_who_read_them(
    answering: TestClient, question: dict[str, Any]
) -> None:
    created = answering.post("/v1/plans", json={**question, "tags": ["old"]}, headers=WAIT)
    path, etag = created.headers["location"], created.headers["etag"]
    assert answering.patch(path, json={"name": "a"}).status_code == 428
    assert answering.patch(path, json={"name": "a"}, headers={"if-match": '"x"'}).status_code == 412
    renamed = answering.patch(path, json={"name": "a"}, headers={"if-match": etag})
    assert (renamed.json()["name"], renamed.json()["tags"]) == ("a", ["old"])
    assert renamed.headers["etag"] != etag
    assert answering.patch(path, json={"tags": ["b"]}, headers={"if-match": etag}).status_code == 412
    tagged = answering.patch(path, json={"tags": ["b", "c"]}, headers={"if-match": "*"})
    assert (tagged.json()["name"], tagged.json()["tags"]) == ("a", ["b", "c"])
    assert answering.patch(path, json={"state": "queued"}, headers={"if-match": "*"}).status_code == 422
    assert [p["id"] for p in listed(answering, tag="c")] == [tagged.json()["id"]]
    assert listed(answering, tag="old") == []


def listed(client: TestClient, **filters: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = client.get("/v1/plans", params=filters).json()["items"]
    return items


def test_lists_are_filtered_and_paged(answering: TestClient, question: dict[str, Any]) -> None:
    ids = []
    for index in range(5):
        body = {**question, "name": f"n{index % 2}", "tags": ["page"]}
        ids.append(answering.post("/v1/plans", json=body, headers=WAIT).json()["id"])
    assert [p["id"] for p in listed(answering, tag="page", name="n1")] == [ids[3], ids[1]]
    assert (
        len(listed(answering, tag="page", model="llama-3.2-1b", cluster="dgx-h100", state="succeeded")) == 5
    )
    assert listed(answering, tag="page", model="gpt2") == []
    assert listed(answering, tag="page", state="failed") == []
    seen, cursor = [], None
    while True:
        asked_for = {"tag": "page", "limit": "2", **({"cursor": cursor} if cursor else {})}
        page = answering.get("/v1/plans", params=asked_for).json()
        seen += [p["id"] for p in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == ids[::-1]  # newest first, none twice, none left out
    for bad in ({"cursor": "!"}, {"cursor": "eA"}, {"limit": "0"}, {"limit": "101"}, {"state": "lost"}):
        assert answering.get("/v1/plans", params=bad).status_code == 422
