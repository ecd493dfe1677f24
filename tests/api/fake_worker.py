"""A search process that answers at once: `python -S fake_worker.py STORY [options]`, JSON lines over pipes.

Stories: answer; refuse; hang (until its input ends); die; eat (memory); steps (progress, then an answer after a
while); by seed (of the request, in the order of STORIES).
"""

import json
import os
import sys
import threading
import time

STORIES = ("answer", "refuse", "die", "hang", "eat")


def say(message: dict) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def document(request: dict) -> dict:
    certificate = {
        "objective": "step_time",
        "lower_bound_s": None,
        "gap": None,
        "meshes_total": 7,
        "meshes_illegal": {"batch": 1},
        "meshes_out_of_memory": 4,
        "meshes_bounded": 0,
        "meshes_solved": 0,
        "meshes_open": 2,
        "space": {"tp": [1, 2], "stages": "contiguous"},
        "wall_s": 0.1,
    }
    result = {
        "status": "infeasible",
        "best": None,
        "alternatives": [],
        "relaxations": [],
        "reason": "no room",
    }
    return {
        "schema_version": 1,
        "id": "plan_" + "a" * 32,
        "request": request,
        "result": result | {"certificate": certificate},
        "made_with": {"planner_version": "0"},
    }


def progress(lower: float, best: float, done: int) -> dict:
    gap = (best - lower) / best
    return {"lower_bound_s": lower, "best_step_s": best, "gap": gap, "meshes_done": done, "meshes_total": 7}


def end_with_input() -> None:
    while sys.stdin.read(1):
        pass
    os._exit(0)


def main() -> None:
    story, request = sys.argv[1], json.loads(sys.stdin.readline())
    if story == "by seed":
        story = STORIES[request["search"]["seed"]]
    threading.Thread(target=end_with_input, daemon=True).start()
    if story == "refuse":
        detail = "no such pin; use another"
        problem = {"code": "invalid_request", "detail": detail, "pointer": "/search/pins", "allowed": []}
        say({"problem": problem})
        return
    if story in ("hang", "eat", "die"):
        say({"progress": progress(1.0, 4.0, 3)})
        time.sleep(0.2)
    if story == "eat":
        eaten = [b"x" * 50_000_000]
        while True:
            eaten.append(b"x" * 50_000_000)
            time.sleep(0.05)
    if story == "die":
        os._exit(9)
    if story == "hang":
        time.sleep(600)
    if story == "steps":
        for lower, best, done in ((1.0, 4.0, 1), (2.0, 3.0, 3), (1.5, 3.5, 2)):
            say({"progress": progress(lower, best, done)})
            time.sleep(0.15)
    say({"document": document(request)})


if __name__ == "__main__":
    main()
