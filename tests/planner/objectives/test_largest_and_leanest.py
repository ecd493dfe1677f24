"""Largest batch, longest sequence, least memory and the front: held against searches that share nothing with them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.errors import BadInput
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import evaluate
from planner.make_plan import make_plan
from planner.objectives.largest import Edge, find_edge
from planner.request import SearchRequest
from planner.situation import changed


@pytest.fixture(scope="module")
def job(make_situation):
    """A model whose batch and length are soon too large for an L4."""
    return make_situation("pythia-410m", "l4", 2, seq_len=8192, global_batch=2)


PINS = {"cp": 1, "vpp": 1, "zero": 1, "schedule": "1f1b", "sp": False, "recompute": "full"}
"""Fewer meshes, so that a search takes no time."""


def fits(situation, **pins):
    """Whether any legal plan fits, by the plain search."""
    search = SearchRequest(pins=PINS | pins, top_k=0, gap=0.9, explain=False)
    return make_plan(situation, search).best is not None


@given(st.integers(0, 300), st.integers(1, 300))
def test_an_edge_is_where_the_verdict_turns(last, num_sizes):
    sizes, asked = list(range(1, num_sizes + 1)), []

    def verdict(size):
        asked.append(size)
        return size <= last

    edge = find_edge(sizes, verdict)
    assert edge.fits == (min(last, num_sizes) or None)
    assert edge.fails == (last + 1 if last < num_sizes else None)
    assert len(asked) <= 2 * len(bin(num_sizes))


def test_an_edge_without_time_is_open():
    assert find_edge([1, 2, 3, 4], lambda size: None) == Edge(None, None, is_open=True)
    assert find_edge([1, 2, 3, 4], lambda size: True if size < 2 else None).is_open
    assert find_edge([], lambda size: True) == Edge(None, None)


def test_the_largest_batch_fits_and_one_more_does_not(job):
    found = make_plan(job, SearchRequest(objective="batch", top_k=0, pins=PINS))
    proof, best = found.certificate.proof, found.best
    value = found.changes["global_batch"]
    assert found.status == "optimal"
    assert value == proof["value"] == proof["bound"] == best.strategy.mbs * best.strategy.dp
    assert evaluate(changed(job, found.changes), best.strategy).verdict == "fits"
    for dp in (1, 2):
        more = value // dp + 1
        assert not fits(changed(job, {"global_batch": more * dp}), dp=dp, mbs=more)


def test_a_pinned_micro_batch_is_kept(job):
    found = make_plan(job, SearchRequest(objective="batch", top_k=0, pins=PINS | {"mbs": 2, "pp": 1}))
    assert found.best.strategy.mbs == 2
    assert found.changes["global_batch"] == 4  # dp 2


def test_the_longest_sequence_fits_and_the_next_does_not(job):
    found = make_plan(job, SearchRequest(objective="seq_len", top_k=0, pins=PINS | {"pp": 1, "mbs": 1}))
    value = found.changes["seq_len"]
    assert found.status == "optimal"
    assert value % 1024 == 0
    assert value == found.certificate.proof["value"]
    assert not fits(changed(job, {"seq_len": value + 1024}), pp=1)
    assert evaluate(changed(job, found.changes), found.best.strategy).verdict == "fits"


def test_images_have_no_sequence(make_situation):
    vision = make_situation("vit-base-patch16-224", "l4", 1, global_batch=8)
    with pytest.raises(BadInput, match="vision"):
        make_plan(vision, SearchRequest(objective="seq_len"))


def test_nothing_uses_less_memory(job):
    found = make_plan(job, SearchRequest(objective="memory", top_k=0, pins=PINS, gap=0.02))
    used, proof = found.best.memory.device_used_bytes, found.certificate.proof
    assert found.status == "optimal"
    assert proof["bound"] <= used == proof["value"]
    assert used <= proof["bound"] * (1.0 + 0.02)
    assert found.changes == {}
    for text in ("tp=2,recompute=full", "pp=2,recompute=full", "recompute=full", "tp=2"):
        assert used <= evaluate(job, parse_strategy(text)).memory.device_used_bytes


def test_no_point_of_a_front_beats_another(job):
    found = make_plan(job, SearchRequest(pareto=True, top_k=0, pins=PINS | {"mbs": 1}))
    front = found.front.to_json()
    measures = [(p["devices"], p["step_s"], p["device_used_bytes"]) for p in front["points"]]
    assert front["complete"]
    assert {devices for devices, _, _ in measures} <= {1, 2}
    for one in measures:
        assert not any(
            other != one and all(b <= a for a, b in zip(one, other, strict=True)) for other in measures
        )
    assert found.best.step_s in [step for _, step, _ in measures]
    for point in found.front.points:
        again = evaluate(changed(job, {"devices": point.devices}), point.prediction.strategy)
        assert again.step_s == point.prediction.step_s
        assert again.verdict == "fits"
