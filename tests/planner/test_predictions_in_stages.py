"""Prediction layers that stages count: priced like those with the loss, cheaper where moved, searched, exported."""

import itertools
import math

import pytest

from cost_models.errors import BadInput, IllegalStrategy
from cost_models.profiles import model_config
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import parse_strategy
from planner.evaluation import Context, evaluate, evaluate_many
from planner.formats.export import PlannedRun
from planner.formats.megatron.write import write_megatron
from planner.formats.recipes.write import fields_of
from planner.formats.registry import read_settings
from planner.formats.settings import Beside
from planner.make_plan import make_plan
from planner.request import CatalogModel, HuggingFaceModel, PresetCluster, SearchRequest
from planner.situation import resolve
from planner.verify import verify

STAGED = {"job.train_mtp": True, "engine.mtp_in_stages": True}
PLACE = "tp=2,pp=16,ep=32,vpp=2,recompute=selective:moe_act+layernorm+mla_up_proj+mlp,stages="


def deepseek(devices=512, model=None, engine="megatron", **options):
    job = JobRequest(seq_len=4096, global_batch=512, engine=engine, options=STAGED | options)
    cluster = PresetCluster(name="dgx-h800", devices=devices)
    return resolve(model or CatalogModel(name="deepseek-v3"), cluster, job)


def small(depth=1):
    """Six layers of DeepSeek-V3's kinds on one node."""
    sizes = {"num_hidden_layers": 6, "first_k_dense_replace": 1, "n_routed_experts": 16, "topk_group": 2}
    sizes |= {"n_group": 4, "num_experts_per_tok": 4, "hidden_size": 2048, "num_nextn_predict_layers": depth}
    return HuggingFaceModel(config=model_config("deepseek-v3") | sizes)


def test_with_the_loss_it_is_what_it_was():
    """61 layers and one more: `…+1` holds the prediction layer alone, as stages=…+0 does where they leave it out."""
    counted = evaluate(deepseek(), parse_strategy(PLACE + "+".join(["3", *["2"] * 28, "1", "1", "1"])))
    plain = deepseek(**{"engine.mtp_in_stages": False})
    before = evaluate(plain, parse_strategy(PLACE + "+".join(["3", *["2"] * 28, "1", "1", "0"])))
    assert counted.step_s == pytest.approx(before.step_s, rel=1e-4)
    for one, other in zip(counted.memory.stages, before.memory.stages, strict=True):
        assert one.allocated_bytes == pytest.approx(other.allocated_bytes, rel=0.01)
    assert counted.parameters == before.parameters


def test_bytes_of_a_stage_of_its_own():
    """Rank 13 holds four equal blocks, rank 14 two of them and the prediction layer without its head.

    That is a block, a copy of the table (129,280 x 7168 over tp 2), the projection of 2 x 7168 to 7168 over tp 2 and
    three norms, of which all ranks hold a copy; 2 bytes each in bf16.
    """
    of = deepseek()
    apart = evaluate(of, parse_strategy(PLACE + "+".join(["3", *["2"] * 29, "1", "0"])))
    weights = [stage.by_cause["weights"] for stage in apart.memory.stages]
    table, projection, norms = 129_280 * 7168 / 2, 2 * 7168 * 7168 / 2, 3 * 7168
    assert weights[14] - 0.75 * weights[13] == pytest.approx(2 * (table + projection + norms), rel=1e-9)
    crowded = evaluate(of, parse_strategy(PLACE + "+".join(["3", *["2"] * 28, "1", "1", "1"])))
    assert apart.step_s < crowded.step_s


def test_refusals_name_the_rule():
    of = deepseek()
    with pytest.raises(IllegalStrategy, match=r"megatron_mtp_stages.*pp 2.*pp 3 or more"):
        evaluate(of, parse_strategy("pp=2,ep=8,tp=8,etp=1"))
    with pytest.raises(BadInput, match=r"megatron@0\.15 keeps prediction layers in the last stage"):
        deepseek(engine="megatron@0.15")
    with pytest.raises(BadInput, match=r"set job\.train_mtp=true"):
        deepseek(**{"job.train_mtp": False})
    with pytest.raises(BadInput, match="no multi-token-prediction layers"):
        deepseek(model=CatalogModel(name="llama-3.1-8b"))
    with pytest.raises(BadInput, match=r"unknown option engine\.mtp_in_stages"):
        deepseek(engine="torch")


@pytest.mark.parametrize("depth", [1, 2])
def test_every_cut_of_a_small_model(depth):
    """One chunk a rank: no cut of the seven blocks beats the plan, lone ends included; counts are the same space."""
    of = deepseek(8, small(depth))
    assert of.model.num_blocks == 7
    pins = {"pp": 4, "tp": 1, "cp": 1, "vpp": 1, "mbs": 1, "ep": 2, "zero": 1, "recompute": "none"}
    result = make_plan(of, SearchRequest(pins=pins))
    verify(Context.of(of), result.best)
    cuts = [cut for cut in itertools.product(range(8), repeat=4) if sum(cut) == 7 and all(cut[1:-1])]
    texts = [f"pp=4,ep=2,zero=1,order={o},stages={'+'.join(map(str, c))}" for c in cuts for o in ORDERS]
    found = evaluate_many(of, [parse_strategy(text) for text in texts])
    steps = [one.step_s for one in found if not isinstance(one, IllegalStrategy) and one.verdict == "fits"]
    assert math.isclose(min(steps), result.best.step_s, rel_tol=1e-9) or min(steps) > result.best.step_s
    inside = [one.step_s for cut, one in zip(cuts, found[::2], strict=True) if all(cut)]
    assert result.certificate.lower_bound_s <= min(inside)


ORDERS = ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")


def test_varied_both_ways_takes_the_better():
    """DeepSeek-V3 on 512 in 32 virtual stages: a rank less crowded beside the loss, 9.88 s instead of 10.17."""
    plain = deepseek(**{"engine.mtp_in_stages": False})
    pins = {"pp": 16, "tp": 2, "ep": 32, "mbs": 1, "vpp": 2, "cp": 1}
    pins["recompute"] = "selective:layernorm+moe_act+mla_up_proj"
    both = make_plan(plain, SearchRequest(pins=pins, vary={"engine.mtp_in_stages": "false,true"}))
    alone = make_plan(plain, SearchRequest(pins=pins))
    assert both.changes == {"options": {"engine.mtp_in_stages": True}}
    assert both.best.step_s < 0.98 * alone.best.step_s
    assert both.certificate.space["vary"] == {"engine.mtp_in_stages": [False, True]}


@pytest.mark.parametrize(
    ("stages", "layout"),
    [
        (["3", *["2"] * 29, "1", "0"], "m|L"),
        (["3", *["2"] * 28, "1", "2", "0"], "tm|L"),
        (["3", *["2"] * 27, "1", "1", "1", "2"], "tmL"),
    ],
)
def test_layouts_come_back(stages, layout):
    of = deepseek()
    strategy = evaluate(of, parse_strategy(PLACE + "+".join(stages))).strategy
    run = PlannedRun(of, strategy)
    exported = write_megatron(run)
    script = exported.files["train.sh"]
    written = script.partition("--pipeline-model-parallel-layout ")[2].partition("\n")[0].strip('"')
    assert written.endswith("|" + layout)
    assert not [loss for loss in exported.losses if "stages" in loss or "mtp" in loss]
    assert fields_of(run, "bridge")["model.pipeline_model_parallel_layout"] == written
    beside = Beside(512, None, {}, "")
    again = read_settings(script, "megatron", beside)
    counted = int(layout != "tmL")
    assert sum(again.strategy.stages) == 61 + counted
    assert again.job.options.get("engine.mtp_in_stages", False) is bool(counted)


def test_layouts_that_divide_predictions_are_refused():
    of = deepseek()
    strategy = evaluate(of, parse_strategy(PLACE + "+".join(["3", *["2"] * 29, "1", "0"]))).strategy
    script = write_megatron(PlannedRun(of, strategy)).files["train.sh"]
    for wrong, why in (("t*2m|m|L", "29, 30 of 32"), ("m|t*2|L", "behind the last layer")):
        with pytest.raises(BadInput, match=why):
            read_settings(script.replace("t*2|m|L", wrong), "megatron", Beside(512, None, {}, ""))
