"""Size tables."""

from typing import Literal

from api.answers.parts import Verdict
from api.answers.plans import ProofBody
from cost_models.specs.base import Frozen
from planner.request import RunRequest

Mark = Literal["fewest", "fewest_that_fit", "cheapest"]


class SizeRowBody(Frozen):
    """The plan and the run on so many devices of one cluster; nulls where there is no plan, `rule` says why."""

    cluster: str
    devices: int
    status: str | None
    rule: str | None
    detail: str | None
    step_s: float | None
    step_s_low: float | None
    step_s_high: float | None
    lower_bound_s: float | None
    gap: float | None
    mfu: float | None
    verdict: Verdict | None
    device_used_bytes: float | None
    strategy: str | None
    wall_s: float | None
    days: float | None
    days_without_failures: float | None
    tokens_per_day: float | None
    device_hours: float | None
    cost_usd: float | None
    energy_kwh: float | None
    energy_kwh_while_busy: float | None
    checkpoint_every_steps: int | None
    goodput: float | None
    meets_deadline: bool | None
    marks: list[Mark]
    note: str


class SizeProofBody(ProofBody):
    """Of which cluster and mark a proof is."""

    cluster: str
    mark: Mark


class LeftOutBody(Frozen):
    """A search that the time did not do for: a row, or the proof of a mark."""

    cluster: str
    devices: int
    mark: Mark | None


class SizesBody(Frozen):
    """`planner size --json`; `complete` is false where searches were left out or cut short."""

    model: str
    unit: str
    tokens: float | None
    deadline_s: float | None
    assumptions: RunRequest
    rows: list[SizeRowBody]
    fewest: list[SizeRowBody]
    fewest_that_fit: list[SizeRowBody]
    cheapest: SizeRowBody | None
    proofs: list[SizeProofBody]
    complete: bool
    left_out: list[LeftOutBody]
    warnings: list[str]
