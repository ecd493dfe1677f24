"""What a plan promises: certificate arithmetic, pins and bans, progress, limits of time, answers of no."""

import pytest

from cost_models.profiles import load_device
from cost_models.specs.strategy import parse_strategy
from planner.answers import PlanResult, Progress
from planner.evaluation import evaluate
from planner.make_plan import make_plan
from planner.relax import nearest_batches
from planner.request import SearchRequest
from planner.situation import situate

MESH_AXES = ("tp", "cp", "pp", "vpp", "ep", "etp", "dp", "dp_replicate", "zero", "mbs")


@pytest.fixture(scope="module")
def small(make_situation):
    return make_situation("llama-3.1-8b", "dgx-h100", 16, seq_len=8192, global_batch=128)


@pytest.fixture(scope="module")
def planned(small) -> PlanResult:
    return make_plan(small, SearchRequest())


def check_certificate(result: PlanResult) -> None:
    """Every mesh is counted once; the bound is below the best; the gap follows from both."""
    c = result.certificate
    ended = c.meshes_out_of_memory + c.meshes_bounded + c.meshes_solved + c.meshes_open
    assert c.meshes_total == sum(c.meshes_illegal.values()) + ended
    if result.best is None:
        assert c.gap is None
        return
    assert c.lower_bound_s is not None
    assert 0.0 < c.lower_bound_s <= result.best.step_s
    assert c.gap == (result.best.step_s - c.lower_bound_s) / result.best.step_s


REQUESTS = [
    ("llama-3.1-8b", "dgx-h100", 16, {"seq_len": 8192, "global_batch": 128}),
    ("mixtral-8x7b", "dgx-h100", 32, {"seq_len": 4096, "global_batch": 256}),
    ("llama-3.1-8b", "dgx-h100", 8, {"seq_len": 4096, "global_batch": 32, "engine": "torch"}),
    ("llama-3.1-8b", "dgx-h100", 8, {"seq_len": 4096, "global_batch": 32, "engine": "fsdp2"}),
    ("resnet-50", "dgx-a100", 8, {"global_batch": 2048, "engine": "ddp"}),
]


@pytest.mark.parametrize(("model", "cluster", "devices", "job"), REQUESTS)
@pytest.mark.parametrize("gap", [1e-3, 1e-2, 0.0])
def test_certificate_arithmetic(make_situation, model, cluster, devices, job, gap):
    result = make_plan(make_situation(model, cluster, devices, **job), SearchRequest(gap=gap))
    check_certificate(result)
    assert result.status == "optimal"
    assert result.certificate.gap <= gap
    assert result.certificate.meshes_open == 0


def test_equal_seeds_give_equal_answers(small, planned):
    again = make_plan(small, SearchRequest(seed=0)).to_json()
    first = planned.to_json()
    for answer in (again, first):
        answer["certificate"] = {k: v for k, v in answer["certificate"].items() if k != "wall_s"}
    assert again == first


@pytest.mark.parametrize(
    ("key", "value"),
    [("tp", 4), ("pp", 4), ("vpp", 2), ("cp", 2), ("mbs", 2), ("dp", 4), ("sp", True), ("schedule", "1f1b")],
)
def test_pins_are_obeyed(small, key, value):
    result = make_plan(small, SearchRequest(pins={key: value}, top_k=3))
    check_certificate(result)
    for prediction in (result.best, *result.alternatives):
        assert prediction is not None
        assert getattr(prediction.strategy, key) == value


@pytest.mark.parametrize("recompute", ["none", "selective", "full", "selective:layernorm"])
def test_a_pinned_recompute_is_obeyed(small, recompute):
    result = make_plan(small, SearchRequest(pins={"recompute": recompute}))
    assert result.best is not None
    assert result.best.strategy.recompute.text() == recompute


@pytest.mark.parametrize("banned", ["selective", "full"])
def test_a_banned_recompute_stays_away(make_situation, banned):
    # Memory binds here: the free plan recomputes.
    of = make_situation("llama-3.1-70b", "dgx-a100", 64, seq_len=8192, global_batch=128)
    found = make_plan(of, SearchRequest(bans=(f"recompute={banned}",), top_k=3))
    for prediction in (found.best, *found.alternatives):
        assert prediction is not None
        assert not prediction.strategy.recompute.text().startswith(banned)


def test_bans_are_obeyed_and_cost_nothing_but_time(small, planned):
    best = planned.best.strategy
    bans = (f"tp={best.tp}", f"mbs={best.mbs}")
    result = make_plan(small, SearchRequest(bans=bans, top_k=3))
    for prediction in (result.best, *result.alternatives):
        assert prediction is not None
        assert prediction.strategy.tp != best.tp
        assert prediction.strategy.mbs != best.mbs
    assert result.best.step_s >= planned.best.step_s * (1.0 - 1e-9)


def test_at_risk_plans_need_permission(small):
    safe = make_plan(small, SearchRequest())
    bold = make_plan(small, SearchRequest(allow_at_risk=True))
    assert all(p.verdict == "fits" for p in (safe.best, *safe.alternatives))
    assert all(p.verdict in ("fits", "at_risk") for p in (bold.best, *bold.alternatives))
    assert bold.best.step_s <= safe.best.step_s * (1.0 + 1e-3)


@pytest.mark.parametrize("top_k", [0, 1, 3, 20])
def test_alternatives_differ_in_a_mesh_axis(small, planned, top_k):
    result = make_plan(small, SearchRequest(top_k=top_k))
    assert len(result.alternatives) <= top_k
    predictions = [result.best, *result.alternatives]
    axes = [tuple(getattr(p.strategy, name) for name in MESH_AXES) for p in predictions]
    assert len(set(axes)) == len(axes)
    steps = [p.step_s for p in result.alternatives]
    assert steps == sorted(steps)
    assert all(step >= result.best.step_s for step in steps)
    assert result.best.step_s == planned.best.step_s


@pytest.mark.parametrize(("model", "cluster", "devices", "job"), REQUESTS)
def test_progress_never_worsens(make_situation, model, cluster, devices, job):
    seen: list[Progress] = []
    result = make_plan(make_situation(model, cluster, devices, **job), SearchRequest(), seen.append)
    assert seen
    inf = float("inf")
    done = [p.meshes_done for p in seen]
    lower = [-inf if p.lower_bound_s is None else p.lower_bound_s for p in seen]
    best = [inf if p.best_step_s is None else p.best_step_s for p in seen]
    assert done == sorted(done)
    assert lower == sorted(lower)
    assert best == sorted(best, reverse=True)
    assert all(low <= step * (1.0 + 1e-12) for low, step in zip(lower, best, strict=True))
    assert all(0 <= p.meshes_done <= p.meshes_total for p in seen)
    assert result.best.step_s <= best[-1]


@pytest.mark.parametrize("max_seconds", [1e-6, 0.05, 0.5])
def test_an_early_stop_is_said_and_bounded(make_situation, max_seconds):
    of = make_situation("llama-3.1-70b", "dgx-h100", 64, seq_len=8192, global_batch=512)
    whole = make_plan(of, SearchRequest())
    result = make_plan(of, SearchRequest(max_seconds=max_seconds))
    check_certificate(result)
    assert result.status in ("optimal", "feasible", "unknown")
    if result.certificate.meshes_open == 0:
        return
    assert result.certificate.lower_bound_s <= whole.best.step_s
    assert (result.status == "unknown") == (result.best is None)
    if result.best is not None:
        assert result.best.step_s >= whole.certificate.lower_bound_s


# ---------------------------------------------------------------- published layouts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "devices", "batch", "pp"),
    # Narayanan et al. 2021, table 1: 175B (TP8 x PP12) and 1T (TP8 x PP64) with full recompute, A100-80GB.
    [
        pytest.param("gpt3-175b", 1536, 1536, 12, marks=pytest.mark.matrix),
        ("megatron-1t", 3072, 3072, 64),
    ],
)
def test_published_layouts_are_in_the_space_and_ours_is_believable(make_situation, model, devices, batch, pp):
    of = make_situation(model, "dgx-a100", devices, seq_len=2048, global_batch=batch)
    ours = make_plan(of, SearchRequest())
    check_certificate(ours)
    assert ours.status == "optimal"
    assert ours.best.mfu < 0.62
    published = evaluate(of, parse_strategy(f"tp=8,pp={pp},recompute=full"))
    assert published.verdict == "fits"
    assert published.step_s >= ours.certificate.lower_bound_s
    pins = {"tp": 8, "pp": pp, "recompute": "full"}
    within = make_plan(of, SearchRequest(pins=pins))
    assert within.status == "optimal"
    assert ours.best.step_s <= within.best.step_s <= published.step_s * (1.0 + 1e-3)
    space = ours.certificate.space
    assert 8 in space["tp"]
    assert pp in space["pp"]


# ---------------------------------------------------------------- small clusters, answers of no


def test_one_device(make_situation):
    of = make_situation("llama-3.2-1b", "dgx-h100", 1, seq_len=4096, global_batch=8)
    result = make_plan(of, SearchRequest())
    check_certificate(result)
    s = result.best.strategy
    assert (s.tp, s.cp, s.pp, s.dp) == (1, 1, 1, 1)
    assert result.status == "optimal"


def test_seven_devices_name_the_nearest_batches(make_situation):
    # Multiples of 7 around 512: 73 x 7 = 511 and 72 x 7 = 504 below, 74 x 7 = 518 above.
    of = make_situation("llama-3.2-1b", "dgx-h100", 7, seq_len=2048, global_batch=512, engine="ddp")
    result = make_plan(of, SearchRequest())
    check_certificate(result)
    assert result.status == "infeasible"
    batches = [r.change for r in result.relaxations if r.change.startswith("global_batch")]
    assert batches == ["global_batch=511", "global_batch=504", "global_batch=518"]
    for batch in ("511", "504", "518"):
        assert batch in result.reason
    assert result.reason.index("511") < result.reason.index("504") < result.reason.index("518")


ON_DEVICE = SearchRequest(pins={"offload": "none"})
"""On the host there is room for all of the first two."""

INFEASIBLE = [
    pytest.param(
        "deepseek-v3", "dgx-h100", 8, {"seq_len": 4096, "global_batch": 64}, 1, marks=pytest.mark.matrix
    ),
    ("llama-3.1-70b", "dgx-h100", 8, {"seq_len": 8192, "global_batch": 64, "engine": "fsdp2"}, 1),
    # 8 billion parameters of 16 bytes and more do not fit on one device, and ddp shards nothing.
    ("llama-3.1-8b", "dgx-h100", 8, {"seq_len": 8192, "global_batch": 64, "engine": "ddp"}, 0),
]


@pytest.mark.parametrize(("model", "cluster", "devices", "job", "helpful"), INFEASIBLE)
def test_what_fits_nowhere_says_what_is_short_and_what_helps(
    make_situation, model, cluster, devices, job, helpful
):
    of = make_situation(model, cluster, devices, **job)
    result = make_plan(of, ON_DEVICE)
    check_certificate(result)
    assert result.status == "infeasible"
    assert "needs" in result.reason
    assert "too much" in result.reason
    assert len(result.relaxations) >= helpful
    lifted = [relaxation for relaxation in result.relaxations if relaxation.cost == "restriction"]
    others = [relaxation for relaxation in result.relaxations if relaxation not in lifted]
    assert {one.change for one in lifted} <= {
        "without pin offload=none",
        "engine=fsdp2",
        "allow_at_risk=true",
    }
    for relaxation in others[:3]:
        again = make_plan(applied(relaxation.change, of), ON_DEVICE)
        assert again.best is not None, relaxation.change
        assert again.best.verdict == "fits"
        # The relaxation names one layout that fits; a search finds none that is slower.
        assert again.best.step_s <= relaxation.step_s * (1.0 + 1e-3)


def applied(change, of):
    """The changed request, from the words of a relaxation alone."""
    key, _, value = change.partition("=")
    if key == "devices":
        return situate(of.model, of.cluster.with_devices(int(value)), of.job_request)
    if key == "device":
        groups = tuple(group.model_copy(update={"device": load_device(value)}) for group in of.cluster.groups)
        return situate(of.model, of.cluster.model_copy(update={"groups": groups}), of.job_request)
    job = of.job_request.model_dump()
    parsed = {"true": True, "false": False}.get(value, int(value) if value.isdigit() else value)
    changed = {"options": job["options"] | {key: parsed}} if "." in key else {key: parsed}
    return situate(of.model, of.cluster, type(of.job_request).model_validate(job | changed))


@pytest.mark.parametrize(
    ("batch", "unit", "expected"),
    [(512, 7, (511, 504, 518)), (512, 8, ()), (3, 7, (7,)), (10, 7, (7, 14)), (15, 7, (14, 7, 21))],
)
def test_nearest_batches(batch, unit, expected):
    assert nearest_batches(batch, unit) == expected
