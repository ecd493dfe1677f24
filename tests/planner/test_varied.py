"""Options that vary: the best of all combinations under one certificate, as if each had been asked alone."""

import itertools

import pytest

from cost_models.errors import BadInput
from planner.evaluation import evaluate
from planner.make_plan import make_plan
from planner.plan_file import plan_document
from planner.request import SearchRequest
from planner.situation import changed
from planner.varied import variants
from planner.verify import verify

PINS = {"cp": 1, "sp": False, "mbs": "1,2", "vpp": 1, "schedule": "1f1b", "offload": "none"}


def small(make_situation, **job):
    """Qwen2.5-7B on four devices, where memory binds."""
    return make_situation("qwen2.5-7b", "dgx-h100", 4, seq_len=8192, global_batch=16, **job)


@pytest.mark.parametrize("engine", ["megatron", pytest.param("torch", marks=pytest.mark.matrix)])
def test_the_best_of_all_combinations_wins(make_situation, engine):
    of = small(make_situation, engine=engine)
    vary = {"grad_dtype": "fp32,bf16", "moment_dtype": "fp32,bf16"}
    search = SearchRequest(pins=PINS, vary=vary, max_seconds=600, gap=0.0)
    result = make_plan(of, search)
    alone = [
        make_plan(
            changed(of, {"options": {"engine.grad_dtype": g, "engine.moment_dtype": m}}),
            SearchRequest(pins=PINS, gap=0.0),
        )
        for g, m in itertools.product(("fp32", "bf16"), repeat=2)
    ]
    steps = [one.best.step_s for one in alone if one.best is not None]
    assert result.status == "optimal"
    assert result.best.step_s == pytest.approx(min(steps), rel=1e-9)
    assert result.certificate.lower_bound_s <= min(steps) * (1.0 + 1e-9)
    # Every mesh of every combination is in one place.
    found = result.certificate
    assert found.meshes_total == sum(one.certificate.meshes_total for one in alone)
    parts = (found.meshes_out_of_memory, found.meshes_bounded, found.meshes_solved, found.meshes_open)
    assert found.meshes_total == sum(found.meshes_illegal.values()) + sum(parts)
    assert found.space["vary"] == {"grad_dtype": ["fp32", "bf16"], "moment_dtype": ["fp32", "bf16"]}


def test_the_plan_file_asks_what_the_plan_answers(make_situation):
    of = small(make_situation)
    search = SearchRequest(pins=PINS, vary={"grad_dtype": "bf16"})
    result = make_plan(of, search)
    assert result.changes == {"options": {"engine.grad_dtype": "bf16"}}
    assert result.best.options["engine.grad_dtype"] == "bf16"
    document = plan_document(of, search, result)
    assert document["request"]["job"]["options"]["engine.grad_dtype"] == "bf16"
    again = evaluate(changed(of, result.changes), result.best.strategy)
    assert again.step_s == result.best.step_s


def test_a_combination_that_an_engine_refuses_is_left_out(make_situation):
    # Megatron's precision-aware optimizer is Adam's: sgd with bf16 moments is not a question.
    found = variants(small(make_situation), {"optimizer": "adamw,sgd", "moment_dtype": "fp32,bf16"})
    assert [one.changes["optimizer"] for one in found] == ["adamw", "adamw", "sgd"]


@pytest.mark.parametrize(
    ("vary", "said"),
    [
        ({"grad_type": "bf16"}, "did you mean grad_dtype"),
        ({"grad_dtype": "bf16,fp12"}, "fp12"),
        ({"engine.nope": "1,2"}, "unknown option engine.nope"),
        ({"grad_dtype": "bf16,"}, "empty value"),
        ({"precision": "bf16,fp7"}, "precision=fp7"),
        ({"engine.cross_entropy_chunks": ",".join(map(str, range(1, 67)))}, "66 combinations"),
    ],
)
def test_unknown_keys_and_values_are_refused_by_name(make_situation, vary, said):
    with pytest.raises(BadInput, match=said):
        make_plan(small(make_situation), SearchRequest(vary=vary))


def test_nothing_fits_says_why(make_situation):
    of = make_situation("llama-3.1-70b", "dgx-h100", 4, seq_len=8192, global_batch=16)
    result = make_plan(
        of, SearchRequest(vary={"grad_dtype": "bf16,fp32"}, max_seconds=20, pins={"pp": 4, "tp": 1})
    )
    assert result.status == "infeasible"
    assert "nothing fits" in result.reason and result.relaxations


def test_other_objectives_vary_too(make_situation):
    search = SearchRequest(pins=PINS, vary={"grad_dtype": "fp32,bf16"}, objective="cost")
    result = make_plan(small(make_situation), search)
    assert set(result.changes) == {"devices", "options"}
    assert result.best.options["engine.grad_dtype"] == result.changes["options"]["engine.grad_dtype"]


def test_a_narrow_optimizer_is_the_distributed_one(make_situation):
    of = small(make_situation, options={"engine.moment_dtype": "bf16"})
    result = make_plan(of, SearchRequest(pins=PINS))
    assert result.certificate.meshes_illegal["megatron_precision_aware"] > 0
    assert result.best.strategy.zero == 1


def test_what_varies_is_verified(make_situation):
    from planner.evaluation import Context

    of = small(make_situation)
    result = make_plan(of, SearchRequest(pins=PINS, vary={"moment_dtype": "bf16,fp8"}))
    verify(Context.of(changed(of, result.changes)), result.best)
