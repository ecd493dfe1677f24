"""Layouts that teams published, held against ours: the same, or slower where an expert would look."""

import pytest

from cost_models.specs.strategy import parse_strategy
from planner.explain import against
from planner.make_plan import make_plan
from planner.request import SearchRequest

pytestmark = pytest.mark.matrix

PUBLISHED = [
    # BLOOM (arXiv:2211.05100, section 3.4): 384 A100, tp 4, pp 12, dp 8, micro-batch 2, ZeRO-1.
    ("bloom-176b", "dgx-a100", 384, (2048, 2048), "tp=4,pp=12,mbs=2", None),
    # Megatron-LM (arXiv:2104.04473, table 1): 175B on 1,024 A100, tp 8, pp 16, micro-batch 1.
    ("gpt3-175b", "dgx-a100", 1024, (2048, 1536), "tp=8,pp=16,mbs=1", "tp_communication"),
    # DeepSeek-V3 (arXiv:2412.19437, section 3.2): 2,048 H800, pp 16, ep 64, no tensor parallelism.
    ("deepseek-v3", "dgx-h800", 2048, (4096, 15360), "tp=1,pp=16,ep=64", "ep_communication"),
]


@pytest.mark.parametrize(("model", "cluster", "devices", "job", "asked", "cause"), PUBLISHED)
def test_where_ours_differs_the_cause_is_named(make_situation, model, cluster, devices, job, asked, cause):
    of = make_situation(model, cluster, devices, seq_len=job[0], global_batch=job[1])
    plan = make_plan(of, SearchRequest(top_k=0)).best
    contrast = against(of, SearchRequest(), plan, parse_strategy(asked), 60.0)
    assert contrast.verdict in (("same", "slower") if cause is None else ("slower",))
    if cause is not None:
        costs = {name: value for name, value in contrast.difference.seconds.items() if value > 0}
        assert cause in sorted(costs, key=costs.get, reverse=True)[:2]
        assert contrast.certificate.lower_bound_s > plan.step_s * (1 - 1e-3)
