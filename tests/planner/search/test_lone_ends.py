"""First and last virtual stages without blocks: priced alike one by one and in bulk, and reached by the search."""

import pytest

from cost_models.engines import complete
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import Context, evaluate
from planner.make_plan import make_plan
from planner.request import SearchRequest
from planner.search.bulk import outcomes
from planner.verify import verify

TEXTS = (
    "pp=4,stages=9+9+8+0",
    "pp=4,stages=0+9+9+8",
    "pp=2,stages=26+0,recompute=full",
    "pp=4,vpp=2,stages=0+4+4+4+4+5+5+0",
    "pp=4,stages=0+13+13+0,recompute=full:3",
)


@pytest.fixture(scope="module")
def of(make_situation):
    """A vocabulary of 256,000 over 26 small blocks: the head weighs several of them."""
    return make_situation("gemma-2-2b", "dgx-h100", 4, seq_len=4096, global_batch=64)


def test_bulk_equals_one_by_one(of):
    context = Context.of(of)
    strategies = [complete(of.engine, context.facts, parse_strategy(text)) for text in TEXTS]
    found = outcomes(context.pricer, strategies)
    alone = [evaluate(of, strategy) for strategy in strategies]
    assert found.step_s.tolist() == pytest.approx([one.step_s for one in alone], rel=1e-12)
    assert found.fits.tolist() == [one.verdict == "fits" for one in alone]


def test_a_heavy_head_gets_a_stage_of_its_own(of):
    result = make_plan(of, SearchRequest(pins={"pp": 4, "vpp": 1}))
    stages = result.best.strategy.stages
    assert stages[-1] == 0
    verify(Context.of(of), result.best)
    # One block more on the last rank, from any other, is slower.
    for giver in range(3):
        cut = [n - (rank == giver) + (rank == 3) for rank, n in enumerate(stages)]
        text = f"pp=4,mbs={result.best.strategy.mbs},zero={result.best.strategy.zero},stages={'+'.join(map(str, cut))}"
        assert evaluate(of, parse_strategy(text)).step_s > 1.05 * result.best.step_s
    assert result.certificate.lower_bound_s <= result.best.step_s


@pytest.mark.parametrize("engine", ["torch", "deepspeed"])
def test_engines_without_lone_ends_keep_a_block_on_every_stage(make_situation, engine):
    of = make_situation("gemma-2-2b", "dgx-h100", 4, seq_len=4096, global_batch=64, engine=engine)
    result = make_plan(of, SearchRequest(pins={"pp": 4}))
    assert min(result.best.strategy.stages) >= 1
