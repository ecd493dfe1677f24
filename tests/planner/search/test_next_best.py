"""Runners-up are the next best meshes: against a search of every mesh around the plan, one at a time."""

from planner.candidates import enumerate_candidates
from planner.evaluation import Context
from planner.make_plan import make_plan
from planner.request import SearchRequest
from planner.restrictions import read_restrictions
from planner.search.space.picks import around, own_states
from planner.search.space.search_state import mesh_axes


def test_no_pinned_neighbour_is_faster_than_the_second(make_situation):
    of = make_situation("llama-3.1-8b", "dgx-h100", 16, seq_len=8192, global_batch=128)
    result = make_plan(of, SearchRequest(top_k=3))
    best, second = result.best, result.alternatives[0]
    assert best is not None
    steps = [best.step_s, *(other.step_s for other in result.alternatives)]
    assert steps == sorted(steps)
    axes = [mesh_axes(plan.strategy) for plan in (best, *result.alternatives)]
    assert len(set(axes)) == len(axes) == 4
    s = best.strategy
    kept = {name: getattr(s, name) for name in ("tp", "cp", "pp", "mbs")}
    tried = 0
    for vpp in (1, 2, 4, 8):
        other = make_plan(of, SearchRequest(top_k=0, pins=kept | {"vpp": vpp}))
        if other.best is not None and mesh_axes(other.best.strategy) != axes[0]:
            tried += 1
            assert other.best.step_s >= second.step_s * (1 - 2e-3)
    assert tried


def test_nodes_around_a_plan_differ_in_two_degrees_at_most(make_situation):
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=4096, global_batch=32)
    context = Context.of(of)
    families = enumerate_candidates(of.engine, context.facts, read_restrictions({}, ())).families
    best = make_plan(of, SearchRequest(top_k=0)).best
    assert best is not None
    nodes, rows = around(families, best.strategy), families.rows
    degrees = ("tp", "cp", "pp", "ep", "etp", "dp", "mbs")
    for row in set(nodes.row.tolist()):
        differ = [axis for axis in degrees if int(getattr(rows, axis)[row]) != getattr(best.strategy, axis)]
        assert len(differ) <= 2
    assert any(
        families.options.states[i].zero == best.strategy.zero for i in own_states(families, best.strategy)
    )
