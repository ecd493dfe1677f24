"""A search that is cut short: counts, bounds and gap stay true, equal questions get equal answers, signals end it."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from planner.answers import PlanResult
from planner.make_plan import make_plan
from planner.request import SearchRequest
from planner.validation.search_speed import CASES

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = "from planner.cli import main; main()"
SMALL = "plan --model llama-3.2-1b --cluster dgx-h100:8 --seq-len 4096 --global-batch 32 --json"
HEAVY = "plan --model llama-3.1-70b --cluster dgx-h100:64 --seq-len 8192 --global-batch 512 --gap 0 --progress jsonl"
TIMES = ("wall_s",)
"""What of an answer may differ between two searches."""


def counts_add_up(result: PlanResult) -> None:
    """Every mesh is counted once, the bound is not above the best, the gap follows from both."""
    found = result.certificate
    ended = found.meshes_out_of_memory + found.meshes_bounded + found.meshes_solved + found.meshes_open
    assert found.meshes_total == sum(found.meshes_illegal.values()) + ended
    assert min(found.meshes_out_of_memory, found.meshes_bounded, found.meshes_solved, found.meshes_open) >= 0
    assert (result.status in ("optimal", "feasible")) == (result.best is not None)
    if found.meshes_open:
        assert result.status != "infeasible"
    if result.best is None or found.objective != "step_time":
        return
    assert found.lower_bound_s is not None
    assert 0.0 < found.lower_bound_s <= result.best.step_s
    assert found.gap == pytest.approx(1.0 - found.lower_bound_s / result.best.step_s, abs=1e-12)


def stopping_after(number: int):
    """A `stop` that says yes from its `number`-th question on."""
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > number

    return stop


@pytest.mark.parametrize(
    ("model", "engine", "batch"),
    [("llama-3.1-8b", "megatron", 64), pytest.param("mixtral-8x7b", "torch", 64, marks=pytest.mark.matrix)],
)
def test_wherever_a_search_stops_its_certificate_is_true(make_situation, model, engine, batch):
    of = make_situation(model, "dgx-h100", 16, engine=engine, seq_len=4096, global_batch=batch)
    whole, rng = make_plan(of, SearchRequest()), random.Random(3)
    least_s = whole.best.step_s
    for number in (0, 1, *(int(10 ** rng.uniform(0.5, 4.0)) for _ in range(6))):
        cut = make_plan(of, SearchRequest(), None, stopping_after(number))
        counts_add_up(cut)
        assert cut.certificate.meshes_total == whole.certificate.meshes_total
        assert cut.certificate.lower_bound_s is None or cut.certificate.lower_bound_s <= least_s * (
            1.0 + 1e-9
        )
        if cut.best is not None:
            assert cut.best.step_s >= whole.certificate.lower_bound_s * (1.0 - 1e-9)


def answer(arguments: str, hash_seed: int) -> dict:
    """The JSON of a command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments.split()],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    for name in TIMES:
        del found["certificate"][name]
    return found


def test_two_processes_give_one_answer():
    first, second = (json.dumps(answer(SMALL, hash_seed)) for hash_seed in (1, 77))
    assert first == second


@pytest.mark.matrix
@pytest.mark.parametrize("case", [c for c in CASES if c.within_s], ids=lambda case: case.name)
def test_two_processes_give_one_answer_on_the_benchmark(case):
    words = f"plan --model {case.model} --cluster {case.cluster}:{case.devices} --engine {case.engine} --json"
    words += f" --seq-len {case.seq_len} --global-batch {case.global_batch} --max-seconds 3600 --seed 5"
    first, second = (json.dumps(answer(words, hash_seed)) for hash_seed in (0, 4242))
    assert first == second


@pytest.mark.parametrize(
    ("sent", "code", "said"),
    [("SIGTERM", -15, "terminated"), pytest.param("SIGINT", 130, "interrupted", marks=pytest.mark.matrix)],
)
def test_a_signal_ends_a_search_in_a_sentence(sent, code, said):
    command = [sys.executable, "-c", PROGRAM, *HEAVY.split()]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert json.loads(process.stderr.readline())["event"] == "progress"
        process.send_signal(signal.Signals[sent])
        out, err = process.communicate(timeout=60)
    last = err.strip().splitlines()[-1]
    assert (process.returncode, out, last) == (code, "", f"planner: {said}")
    assert "Traceback" not in err


@pytest.mark.bench
@pytest.mark.parametrize("max_seconds", [0.5, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_search_ends_within_half_a_second_of_its_limit(case, max_seconds, monkeypatch, record_property):
    """In processor time, so that a busy machine says nothing: the search's clock is the process's."""
    of = case.situation()
    monkeypatch.setattr(time, "monotonic", time.process_time)
    started = time.process_time()
    result = make_plan(of, SearchRequest(max_seconds=max_seconds))
    spent = time.process_time() - started
    counts_add_up(result)
    record_property("result", f"{result.status} {spent:.2f} s gap {result.certificate.gap}")
    assert spent <= max_seconds + 0.5
