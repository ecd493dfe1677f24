"""From a step to a run: steps, days, device hours, cost and energy; formulas in docs/objectives.md.

steps  = ceil(tokens / tokens of a step)
busy   = steps x step
wall   = busy / goodput
cost   = price per hour of all devices x wall
energy = power of all devices x wall x PUE
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

from cost_models.mesh import batch_of, mesh_key
from cost_models.rows import model_rows
from cost_models.schedule.names import ScheduleName
from cost_models.specs.recompute import Recompute
from cost_models.specs.strategy import Strategy
from cost_models.states import row_groups
from planner.answers import Prediction
from planner.objectives.goodput import DAY_S, HOUR_S, Goodput, expected_goodput
from planner.request import RunRequest
from planner.situation import Situation

KILOWATT_HOUR_J = 3.6e6
MILLION = 1e6


@dataclass(frozen=True)
class RunTerms:
    """What a run costs beside its steps, for one situation: rates of all devices together, and the goodput.

    `price_usd_per_s` is None where neither the request nor every group of the cluster states a price.
    """

    devices: int
    units_per_step: int
    unit: str
    price_usd_per_s: float | None
    power_w: float
    goodput: Goodput
    request: RunRequest

    @classmethod
    def of(cls, situation: Situation, run: RunRequest) -> "RunTerms":
        """The terms of a situation's cluster and job."""
        cluster = situation.cluster
        devices = cluster.num_devices
        power = sum(
            group.num_devices * (group.power_w or cluster.device_of(index).power_w.value)
            for index, group in enumerate(cluster.groups)
        )
        tokens = situation.job.tokens_per_step
        return cls(
            devices=devices,
            units_per_step=tokens or situation.job.global_batch,
            unit="tokens" if tokens else "samples",
            price_usd_per_s=_price_usd_per_s(situation, run),
            power_w=power * run.pue,
            goodput=expected_goodput(run, devices, checkpoint_bytes(situation)),
            request=run,
        )

    def on(self, devices: int) -> "RunTerms":
        """The same terms on another number of the same devices."""
        share = devices / self.devices
        price = self.price_usd_per_s
        return replace(
            self,
            devices=devices,
            price_usd_per_s=None if price is None else price * share,
            power_w=self.power_w * share,
            goodput=expected_goodput(self.request, devices, self.goodput.checkpoint_bytes),
        )

    @cached_property
    def steps(self) -> int | None:
        """Steps of the run; None where its length is not stated."""
        tokens = self.request.tokens
        return None if tokens is None else math.ceil(tokens / self.units_per_step)

    @cached_property
    def slowest_step_s(self) -> float:
        """The longest step that reaches the deadline and the rate that were asked for; infinite without any."""
        limits = [math.inf]
        if self.request.deadline_s is not None and self.steps is not None:
            limits.append(self.request.deadline_s * self.goodput.share / self.steps)
        if self.request.min_tokens_per_s is not None:
            limits.append(self.units_per_step / self.request.min_tokens_per_s)
        return min(limits)

    def wall_s(self, step_s: float) -> float:
        """Expected seconds of the run with saves, failures and repeated work; of one step where no length is stated."""
        if self.steps is None:
            return step_s
        share = self.goodput.share
        return self.steps * step_s / share if share > 0.0 else math.inf


def run_json(terms: RunTerms, prediction: Prediction) -> dict[str, object] | None:
    """The `run` object of an answer; None where the length of the run is not stated."""
    if terms.steps is None:
        return None
    step_s = prediction.step_s
    wall_s, busy_s = terms.wall_s(step_s), terms.steps * step_s
    price = terms.price_usd_per_s
    deadline_s = terms.request.deadline_s
    energy_j = terms.power_w * wall_s
    return {
        "unit": terms.unit,
        "tokens": terms.request.tokens,
        "steps": terms.steps,
        "days": wall_s / DAY_S,
        "days_without_failures": busy_s / DAY_S,
        "tokens_per_day": terms.units_per_step / step_s * terms.goodput.share * DAY_S,
        "device_hours": terms.devices * wall_s / HOUR_S,
        "cost_usd": None if price is None else price * wall_s,
        "cost_usd_per_million_tokens": None if price is None else price * cost_share(terms, step_s),
        "price_per_device_hour_usd": None if price is None else price * HOUR_S / terms.devices,
        "energy_kwh": energy_j / KILOWATT_HOUR_J,
        "energy_kwh_while_busy": energy_j / KILOWATT_HOUR_J * busy_share(prediction) * terms.goodput.share,
        "power_w": terms.power_w,
        "goodput": terms.goodput.to_json(),
        "checkpoint_every_steps": max(1, round(terms.goodput.interval_s / step_s)),
        "deadline_s": deadline_s,
        "meets_deadline": None if deadline_s is None else wall_s <= deadline_s,
    }


def cost_share(terms: RunTerms, step_s: float) -> float:
    """Wall seconds of a million tokens, with failures."""
    share = terms.goodput.share
    return step_s / terms.units_per_step * MILLION / share if share > 0.0 else math.inf


def busy_share(prediction: Prediction) -> float:
    """Share of the step in which the least idle stage computes or communicates: all but the bubble."""
    return 1.0 - prediction.breakdown_s["pp_bubble"] / prediction.step_s


def checkpoint_bytes(situation: Situation) -> float:
    """Bytes of a checkpoint: weights and optimizer states of all trained parameters, each stored once.

    Bytes of a parameter are what the engine keeps for it where nothing is sharded: bf16 weights, fp32 master and two
    moments are 14 under megatron.
    """
    counts = situation.counts
    trained = counts.trainable + (counts.mtp if situation.job.options.train_mtp else 0)
    return trained * _state_bytes_per_parameter(situation)


def _state_bytes_per_parameter(situation: Situation) -> float:
    single = Strategy(
        tp=1,
        cp=1,
        pp=1,
        vpp=1,
        ep=1,
        etp=1,
        dp=1,
        dp_shard=1,
        dp_replicate=1,
        zero=situation.engine.default_zero,
        mbs=1,
        sp=False,
        schedule=ScheduleName.ONE_F_ONE_B,
        recompute=Recompute(),
        stages=(situation.model.num_blocks,),
    )
    meshes = batch_of([single], mesh_key(single))
    for row in model_rows(situation.model, situation.job).rows:
        for group, _ in row_groups(row):
            if not group.frozen:
                found = situation.engine.group_bytes(group, meshes, situation.job)
                return float((meshes.tp * 0.0 + found.weights + found.optimizer)[0])
    return 0.0


def _price_usd_per_s(situation: Situation, run: RunRequest) -> float | None:
    """Price of all devices in USD a second: the request's, else every group's own."""
    total = 0.0
    for group in situation.cluster.groups:
        price = run.price_per_device_hour_usd
        price = group.price_per_device_hour_usd if price is None else price
        if price is None:
            return None
        total += group.num_devices * price / HOUR_S
    return total
