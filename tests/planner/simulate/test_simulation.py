"""Simulated steps: the same step as evaluate's, sums that must hold, one pipeline by hand, traces that viewers read."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest

from cost_models.chunk import LayerTable, MeshCosts, StepRules
from cost_models.schedule import ScheduleName
from cost_models.specs.recompute import Recompute
from cost_models.specs.strategy import Strategy, parse_strategy
from planner.evaluation import evaluate
from planner.render.simulation import timeline_cells
from planner.simulate import simulate, trace_events, write_trace
from planner.simulate.simulation import simulation_of

CASES = [
    ("llama-3.1-8b", 16, "megatron", "tp=2,pp=4,vpp=2"),
    ("llama-3.1-8b", 16, "megatron", "tp=2,pp=2,stages=18+14,recompute=full:3"),
    ("llama-3.1-8b", 8, "torch", "pp=4,schedule=gpipe"),
    ("llama-3.1-8b", 8, "torch", "pp=4,schedule=zb-h1"),
    ("llama-3.1-8b", 8, "torch", "pp=4,schedule=zb-v"),
    ("mixtral-8x7b", 16, "torchtitan@0.3", "pp=2,ep=8,schedule=dualpipe-v"),
    ("llama-3.2-1b", 1, "fsdp2", "mbs=2"),
]


def by_hand(m: int = 4, send_s: float = 0.0) -> tuple[MeshCosts, Strategy]:
    """Two ranks of one block: forward 1 s, backward 2 s, reduction 0.5 s, optimizer 0.25 s, nothing else."""
    zero, block = np.zeros(4), np.array([0.0, 1.0, 1.0, 0.0])

    def parts(values: np.ndarray, causes: int) -> np.ndarray:
        return np.stack([values] + [zero] * (causes - 1))

    names = LayerTable.__dataclass_fields__
    table = LayerTable(
        **{name: zero for name in names if not name.endswith(("parts_s", "parts_bytes"))}
        | {"forward_parts_s": parts(block, 6), "backward_parts_s": parts(2 * block, 6)}
        | {"full_parts_s": parts(zero, 6), "static_parts_bytes": parts(zero, 3)}
        | {"sync_s": block / 2, "optimizer_s": block / 4}
    )
    rules = StepRules(send_s=send_s, step_fixed_s=0.1, straggler_factor=1.02)
    ones = dict.fromkeys(("tp", "cp", "vpp", "ep", "etp", "dp", "dp_shard", "dp_replicate", "mbs"), 1)
    schedule = ScheduleName.ONE_F_ONE_B
    strategy = Strategy(
        **ones, pp=2, zero=0, sp=False, schedule=schedule, recompute=Recompute(), stages=(1, 1)
    )
    return MeshCosts(schedule, 2, 1, m, table, rules), strategy


@pytest.mark.parametrize(("model", "devices", "engine", "text"), CASES)
def test_the_step_is_that_of_evaluate(make_situation, model, devices, engine, text):
    situation = make_situation(model, "dgx-h100", devices, seq_len=2048, global_batch=32, engine=engine)
    predicted, found = evaluate(situation, parse_strategy(text)), simulate(situation, parse_strategy(text))
    assert found.step_s == found.makespan_s == predicted.step_s
    assert found.strategy == predicted.strategy
    for rank in found.ranks:
        whole = rank.busy_s + rank.bubble_s + rank.reduction_exposed_s + rank.tail_s
        assert whole + found.fixed_s + found.straggler_s == pytest.approx(found.step_s, rel=1e-12)
    causes = predicted.breakdown_s
    waits = found.ranks[predicted.critical_stage].bubble_s
    # Sends that the stage itself waits for are inside its operations, the others inside its bubble.
    assert causes["pp_bubble"] - 1e-9 <= waits <= causes["pp_bubble"] + causes["pp_communication"] + 1e-9
    assert sum(rank.operations for rank in found.ranks) == len(found.operations.rank)


def test_by_hand():
    found = simulation_of(*by_hand())
    # 1F1B, p = 2, m = 4: (m + p - 1)(1 + 2) = 15 s; each rank works 12 s and waits 3 s
    assert found.pipeline_s == 15.0
    assert [rank.busy_s for rank in found.ranks] == [12.0, 12.0]
    # rank 1 ends its last backward at 13 and its reduction at 13.5, the barrier is at 15.5: it waits 3 s in all
    assert [rank.bubble_s for rank in found.ranks] == [3.0, 3.0]
    assert [rank.in_flight_peak for rank in found.ranks] == [2, 1]
    # (15 + 0.5 + 0.25 + 0.1) x 1.02
    assert found.step_s == pytest.approx(16.167)
    cells = ["".join(letter for letter, _ in timeline_cells(found, rank, 16)) for rank in found.ranks]
    assert cells == ["FF..BBFBBFBB.BBO", ".FBBFBBFBBFBB..O"]


def test_a_trace_ends_with_the_step_and_nothing_overlaps_in_a_thread(tmp_path):
    found = simulation_of(*by_hand(m=3, send_s=0.5))
    write_trace(tmp_path / "trace.json", found)
    document = json.loads((tmp_path / "trace.json").read_text())
    events = document["traceEvents"]
    assert events == list(trace_events(found))
    complete = [event for event in events if event["ph"] == "X"]
    assert {event["ph"] for event in events} == {"X", "M"}
    assert {event["pid"] for event in complete} == {0, 1}
    assert max(e["ts"] + e["dur"] for e in complete) == pytest.approx(found.step_s * 1e6, rel=1e-12)
    computed = [event for event in complete if event["args"]["phase"] in ("forward", "backward")]
    assert len(computed) == 2 * 2 * 3
    # Forward 1 of rank 1 waits for its tensor: forward 0 of rank 0 ends at 1 s, which travels half a second.
    (first,) = [e for e in computed if e["pid"] == 1 and e["name"] == "forward 0"]
    assert (first["ts"], first["dur"]) == (1.5e6, 1e6)
    assert first["args"] == {"micro_batch": 0, "chunk": 0, "phase": "forward", "stage": 1}
    sent = [event for event in complete if event["args"]["phase"].startswith("send")]
    assert len(sent) == 2 * 3 and all(event["tid"] >= 2 for event in sent)
    for thread in {(event["pid"], event["tid"]) for event in complete}:
        mine = sorted((e["ts"], e["dur"]) for e in complete if (e["pid"], e["tid"]) == thread)
        assert all(start + long <= later + 1e-3 for (start, long), (later, _) in pairwise(mine))


def test_tensors_that_travel_at_once_get_threads_of_their_own():
    # A send of 5 s is longer than the 1 s between two forwards of rank 0.
    found = simulation_of(*by_hand(send_s=5.0))
    sent = [e for e in trace_events(found) if e["ph"] == "X" and e["args"]["phase"] == "send activation"]
    assert len({event["tid"] for event in sent if event["pid"] == 0}) > 1


def test_pairs_run_side_by_side(make_situation):
    situation = make_situation(
        "mixtral-8x7b", "dgx-h100", 32, seq_len=2048, global_batch=64, engine="torchtitan@0.3"
    )
    found = simulate(situation, parse_strategy("pp=4,ep=8,schedule=dualpipe-v"))
    assert found.operations.joined.any()
    events = [
        e for e in trace_events(found) if e["ph"] == "X" and e["args"]["phase"] in ("forward", "backward")
    ]
    beside = [event for event in events if event["tid"] == 2]
    assert len(beside) == int(found.operations.joined.sum())
    forwards = {(e["pid"], e["ts"], e["dur"]) for e in events if e["args"]["phase"] == "forward"}
    assert all((e["pid"], e["ts"], e["dur"]) in forwards for e in beside)
    cells = [letter for letter, _ in timeline_cells(found, found.ranks[3], 200)]
    assert cells.count("P") > 50


def test_json_is_finite_and_counts(make_situation):
    situation = make_situation("llama-3.2-1b", "dgx-h100", 8, seq_len=2048, global_batch=32)
    payload = simulate(situation, parse_strategy("pp=4")).to_json()
    assert payload["operations"] == 4 * 2 * 16
    assert payload["in_flight_peak"] == [4, 3, 2, 1]
    assert all(math.isfinite(value) for value in payload["bubble_s"])
    json.dumps(payload, allow_nan=False)
