"""A run's steps, days, cost and energy against arithmetic and published accounts."""

from dataclasses import replace

import pytest

from cost_models.specs.cluster import ClusterSpec
from planner.evaluation import evaluate
from planner.objectives.run import RunTerms, busy_share, checkpoint_bytes, run_json
from planner.request import RunRequest
from planner.situation import situate

SAFE = {"mtbf_device_hours": 1e15, "checkpoint_s": 0.0, "restart_s": 0.0}
"""Never fails and saves for nothing, so wall time is step time."""


@pytest.fixture(scope="module")
def small(make_situation):
    return make_situation("llama-3.1-8b", "dgx-a100", 8, seq_len=4096, global_batch=256)


def priced(situation, **update):
    """The situation with its group changed."""
    group = situation.cluster.groups[0].model_copy(update=update)
    cluster = ClusterSpec(name="c", groups=(group,), tiers=situation.cluster.tiers)
    return situate(situation.model, cluster, situation.job_request)


def at_step(situation, step_s):
    from cost_models.specs.strategy import parse_strategy

    found = evaluate(situation, parse_strategy("tp=8"))
    return replace(found, step_s=step_s, breakdown_s={**found.breakdown_s, "pp_bubble": 0.25 * step_s})


def test_cost_is_price_times_devices_times_hours(small):
    terms = RunTerms.of(small, RunRequest(tokens=2**20 * 1000, price_per_device_hour_usd=2.0, **SAFE))
    # 1,048,576 tokens a step: 1,000 steps of 3.6 s are one hour; 8 devices at 2 USD are 16 USD.
    found = run_json(terms, at_step(small, 3.6))
    assert found["steps"] == 1000
    assert found["days"] == pytest.approx(1.0 / 24.0)
    assert found["device_hours"] == pytest.approx(8.0)
    assert found["cost_usd"] == pytest.approx(16.0)
    # 1,048.576 million tokens for 16 USD
    assert found["cost_usd_per_million_tokens"] == pytest.approx(16.0 / 1048.576)
    assert found["tokens_per_day"] == pytest.approx(2**20 * 24_000)


def test_a_part_of_a_step_is_a_step(small):
    assert RunTerms.of(small, RunRequest(tokens=2**20 + 1)).steps == 2
    assert RunTerms.of(small, RunRequest()).steps is None


def test_energy_is_power_times_hours_as_published_accounts_have_it(small):
    # LLaMA (arXiv:2302.13971, table 15): 1,022,362 device hours x 400 W x PUE 1.1 = 449 MWh.
    # BLOOM (Luccioni et al., JMLR 24 (2023), table 1): 1,082,990 device hours x 400 W = 433,196 kWh.
    a100 = priced(small, power_w=400.0)
    for hours, pue, kwh in ((1_022_362, 1.1, 449_839.3), (1_082_990, 1.0, 433_196.0)):
        terms = RunTerms.of(a100, RunRequest(tokens=2**20, pue=pue, **SAFE))
        found = run_json(terms, at_step(a100, hours / 8 * 3600.0))
        assert found["energy_kwh"] == pytest.approx(kwh, rel=1e-6)
        assert found["energy_kwh_while_busy"] == pytest.approx(0.75 * kwh, rel=1e-6)  # a quarter waits


def test_an_unknown_price_stays_unknown(small):
    assert small.cluster.groups[0].price_per_device_hour_usd is None
    found = run_json(RunTerms.of(small, RunRequest(tokens=1e9)), at_step(small, 1.0))
    assert found["cost_usd"] is None
    assert found["cost_usd_per_million_tokens"] is None
    own = priced(small, price_per_device_hour_usd=3.0)
    assert RunTerms.of(own, RunRequest()).price_usd_per_s == pytest.approx(8 * 3.0 / 3600.0)
    stated = RunTerms.of(own, RunRequest(price_per_device_hour_usd=0.0))
    assert stated.price_usd_per_s == 0.0  # nothing is a price


def test_power_falls_back_to_the_device(small):
    assert RunTerms.of(small, RunRequest()).power_w == 8 * 812.5  # the node's share, from the cluster profile
    assert RunTerms.of(priced(small, power_w=None), RunRequest()).power_w == 8 * 400.0  # A100 SXM


def test_failures_lengthen_the_run(small):
    terms = RunTerms.of(small, RunRequest(tokens=1e12, mtbf_device_hours=1000.0))
    found = run_json(terms, at_step(small, 1.0))
    assert found["days"] * terms.goodput.share == pytest.approx(found["days_without_failures"])
    assert found["days"] > found["days_without_failures"]


def test_the_deadline_counts_failures(small):
    run = RunRequest(tokens=2**20 * 86_400, deadline_s=86_400.0, mtbf_device_hours=1000.0)
    terms = RunTerms.of(small, run)
    assert terms.slowest_step_s == pytest.approx(terms.goodput.share)  # a step a second would do without
    assert run_json(terms, at_step(small, 0.999 * terms.goodput.share))["meets_deadline"] is True
    assert run_json(terms, at_step(small, 1.001 * terms.goodput.share))["meets_deadline"] is False


def test_the_least_rate_is_of_the_steps(small):
    terms = RunTerms.of(small, RunRequest(min_tokens_per_s=2**20))
    assert terms.slowest_step_s == pytest.approx(1.0)


def test_a_checkpoint_holds_weights_and_optimizer_of_what_is_trained(small, make_situation):
    # bf16 weights 2, fp32 master 4, two fp32 moments 8: 14 bytes of each of 8,030,261,248 parameters
    assert checkpoint_bytes(small) == pytest.approx(14 * 8_030_261_248)
    lora = make_situation(
        "llama-3.1-8b", "dgx-a100", 8, seq_len=4096, global_batch=256, options={"job.trainable": "lora:r=16"}
    )
    assert checkpoint_bytes(lora) == pytest.approx(14 * lora.counts.trainable)


def test_the_bubble_is_not_busy(small):
    assert busy_share(at_step(small, 2.0)) == pytest.approx(0.75)
