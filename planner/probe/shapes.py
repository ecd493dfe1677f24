"""Smaller layouts in which a device holds what one device of the plan's fullest stage holds."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from cost_models.errors import BadInput
from cost_models.schedule.names import ScheduleName
from cost_models.specs.recompute import ALL_LAYERS, Recompute
from cost_models.specs.strategy import Strategy
from planner.situation import Situation


@dataclass(frozen=True, slots=True)
class Shape:
    """Degrees of a probe; tp, mbs, recompute, ZeRO, sequence parallelism and offload are the plan's.

    With fewer context-parallel ranks the sequence is as much shorter, so that a rank keeps its tokens; with fewer
    expert ranks there are as many experts fewer, so that a rank keeps its experts. `held` above 0 is GPipe on one rank
    with so many micro-batches, which keeps as many as the plan's fullest stage has in flight.
    """

    cp: int
    pp: int
    vpp: int
    dp: int
    ep: int
    seq_len: int
    experts: int
    held: int = 0

    def devices(self, tp: int) -> int:
        """Devices that the probe runs on."""
        return tp * self.cp * self.pp * self.dp


def shapes(situation: Situation, strategy: Strategy, devices: int, held: int) -> Iterator[Shape]:
    """Shapes on at most so many devices, for a stage that keeps `held` micro-batches.

    Raises BadInput where not even the tensor parallelism of one stage fits.
    """
    if strategy.tp > devices:
        raise BadInput(
            f"a probe keeps tp {strategy.tp}, so it needs at least {strategy.tp} devices, not {devices}; give "
            f"--devices {strategy.tp}",
            pointer="/devices",
        )
    cp = max(d for d in range(1, strategy.cp + 1) if strategy.cp % d == 0 and strategy.tp * d <= devices)
    seq_len = situation.job.seq_len * cp // strategy.cp
    all_forward = "gpipe" in situation.engine.space(situation.model, situation.job).schedules
    for pp in range(1, min(strategy.pp, devices // (strategy.tp * cp)) + 1):
        for dp in _data_parallel(devices // (strategy.tp * cp * pp), strategy.dp):
            experts = _experts(situation, strategy, strategy.tp * cp * dp)
            if experts is None:
                continue
            for vpp in sorted({1, strategy.vpp} if pp > 1 else {1}):
                yield Shape(cp, pp, vpp, dp, experts[0], seq_len, experts[1])
            if pp == 1 and held > 1 and all_forward:
                yield Shape(cp, pp, 1, dp, experts[0], seq_len, experts[1], held)


def _data_parallel(most: int, planned: int) -> list[int]:
    """Data-parallel sizes: powers of two, at most the plan's."""
    return [1 << power for power in range(min(most, planned).bit_length())]


def _experts(situation: Situation, strategy: Strategy, ranks: int) -> tuple[int, int] | None:
    """The largest expert-parallel size on so many ranks, and the experts that leave each rank its own; None where a
    token's experts would be more than there are."""
    model = situation.model
    if not model.is_moe:
        return 1, 0
    sizes = [
        ep for ep in range(1, strategy.ep + 1) if strategy.ep % ep == 0 and ranks % (strategy.etp * ep) == 0
    ]
    if not sizes:
        return None
    experts = model.num_experts * sizes[-1] // strategy.ep
    return (sizes[-1], experts) if experts >= model.num_experts_per_token else None


def probe_strategy(strategy: Strategy, shape: Shape, blocks: int, worst: int) -> dict[str, object]:
    """The knobs of a probe with so many blocks a pipeline rank, as a strategy is written."""
    schedule = strategy.schedule
    if shape.pp == 1 or (shape.vpp == 1 and schedule is ScheduleName.INTERLEAVED):
        schedule = ScheduleName.ONE_F_ONE_B
    if shape.held:
        schedule = ScheduleName.GPIPE
    per_chunk, extra = divmod(blocks, shape.vpp)
    chunks = [per_chunk + (chunk < extra) for chunk in range(shape.vpp) for _ in range(shape.pp)]
    return {
        "tp": strategy.tp,
        "cp": shape.cp,
        "pp": shape.pp,
        "vpp": shape.vpp,
        "ep": shape.ep,
        "etp": strategy.etp,
        "dp": shape.dp,
        "zero": strategy.zero,
        "mbs": strategy.mbs,
        "sp": strategy.sp,
        "schedule": schedule.value,
        "recompute": _recompute(strategy, blocks, worst).text(()),
        "stages": "+".join(map(str, chunks)),
        "cp_kind": strategy.cp_kind,
        "order": "-".join(strategy.order),
        "offload": strategy.offload,
    }


def _recompute(strategy: Strategy, blocks: int, worst: int) -> Recompute:
    """The same recompute; of a count of full layers the share that the fullest stage recomputes."""
    recompute = strategy.recompute
    if recompute.full in (0, ALL_LAYERS):
        return recompute
    held = range(worst, len(strategy.stages), strategy.pp)
    full = sum(strategy.full_layers()[stage] for stage in held)
    share = full / max(sum(strategy.stages[stage] for stage in held), 1)
    return Recompute(recompute.scopes, math.ceil(share * blocks))


def micro_batches(strategy: Strategy, shape: Shape, planned: int) -> int:
    """Enough micro-batches that the pipeline fills twice, in whole groups of ranks, at most the plan's."""
    if shape.held:
        return shape.held
    wanted = max(2 * shape.pp, 4)
    return (
        max(min(wanted, planned // shape.pp * shape.pp), shape.pp) if shape.pp > 1 else min(wanted, planned)
    )
