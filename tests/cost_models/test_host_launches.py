"""What the host launches: the least seconds of a layer of Megatron's modules, and recomputed regions."""

import numpy as np
import pytest

from cost_models.mesh import batch_of, mesh_key
from cost_models.roofline import load_efficiency
from cost_models.row_work import RowWork
from cost_models.specs.strategy import StrategyRequest
from planner.evaluation import Context, complete_legal, evaluate
from planner.request import PlanRequest
from planner.situation import Situation, resolve

BLOCK = 1


def _situation(model: str, cluster: str = "dgx-h100", **options: object) -> Situation:
    job = {
        "seq_len": 2048,
        "global_batch": 8,
        "precision": "bf16",
        "engine": options.pop("engine", "megatron"),
    }
    asked = PlanRequest.model_validate(
        {
            "model": {"kind": "catalog", "name": model},
            "cluster": {"kind": "preset", "name": cluster, "devices": 8},
            "job": {**job, "options": {f"engine.{name}": value for name, value in options.items()}},
        }
    )
    return resolve(asked.model, asked.cluster, asked.job)


def _work(situation: Situation, tp: int, recompute: str = "none", *, sp: bool = True) -> RowWork:
    context = Context.of(situation)
    request = StrategyRequest(tp=tp, pp=1, dp=8 // tp, mbs=1, sp=sp and tp > 1, recompute=recompute, zero=1)
    strategy = complete_legal(context, request)
    return context.pricer.price(batch_of([strategy], mesh_key(strategy))).work


def _passes(work: RowWork) -> tuple[float, float]:
    return work.forward_parts_s[:, BLOCK, 0].sum(), work.backward_parts_s[:, BLOCK, 0].sum()


def test_a_small_layer_takes_what_its_launches_take() -> None:
    """10 operators of a GPT-2 block; of a module 0.2 for a message of sequence parallelism (4 forward, 6 backward),
    0.05 for an all-reduce (2 and 2)."""
    module_s = load_efficiency("hopper").module_s
    divided, whole = (_passes(_work(_situation("gpt2"), 4, sp=sp)) for sp in (True, False))
    assert divided == pytest.approx((4.8 * module_s, 7.2 * module_s))
    assert whole == pytest.approx((4.1 * module_s, 6.1 * module_s))


@pytest.mark.parametrize(
    ("cluster", "sp", "least", "most"),
    [
        ("dgx-h100", False, 3.8e-3, 4.3e-3),
        ("dgx-h100", True, 4.5e-3, 5.8e-3),
        ("dgx-a100", False, 5.6e-3, 6.4e-3),
        ("dgx-a100", True, 6.6e-3, 7.7e-3),
    ],
)
def test_published_tests_of_small_layers_are_met(cluster: str, sp: bool, least: float, most: float) -> None:
    """Blocks of hidden size 512 in Megatron-Core's tests, medians at tp 2: 4.3 and 5.4 ms on H100, 6.4, 7.7 on A100."""
    assert least < sum(_passes(_work(_situation("gpt2", cluster), 4, sp=sp))) < most


def test_a_large_layer_hides_its_launches() -> None:
    large = _passes(_work(_situation("llama-3.1-70b"), 1))
    assert large == _passes(_work(_situation("llama-3.1-70b", cuda_graphs=True), 1))
    assert large[0] > 11 * load_efficiency("hopper").module_s


def test_graphs_launch_nothing_and_plain_torch_has_no_modules_of_that_weight() -> None:
    host_s = 10 * load_efficiency("hopper").module_s
    for situation in (_situation("gpt2", cuda_graphs=True), _situation("gpt2", engine="torch")):
        assert sum(_passes(_work(situation, 4))) < 0.5 * host_s


def test_full_recompute_launches_the_forward_again() -> None:
    situation = _situation("gpt2")
    plain, again = (
        evaluate(situation, StrategyRequest(tp=4, pp=1, dp=2, mbs=1, sp=True, recompute=recompute)).step_s
        for recompute in ("none", "full")
    )
    # 12 blocks x 4 micro-batches x (10 operators, 0.4 of each once more, and 4 messages of 0.2)
    assert again - plain == pytest.approx(12 * 4 * 4.8 * load_efficiency("hopper").module_s, rel=0.1)


def test_regions_cost_the_host_where_it_is_the_bottleneck() -> None:
    """Two norms of a block are two regions, attention is one."""
    eager = _situation("llama-3.1-70b", generation="bridge-eager")
    base = _passes(_work(eager, 1))[1]
    regions = Context.of(eager).pricer.efficiency.region_s
    device = _situation("llama-3.1-70b", generation="bridge-2026")
    without = _passes(_work(device, 1))[1]
    for recompute, count in (("selective:layernorm", 2), ("selective:core_attn", 1)):
        added = _passes(_work(eager, 1, recompute))[1] - base
        shown = _passes(_work(device, 1, recompute))[1] - without
        assert added - shown == pytest.approx(count * regions, rel=0.05)
    assert np.isclose(Context.of(device).pricer.efficiency.region_s, 0.0)
