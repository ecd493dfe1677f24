"""What is declared on several device groups: placements under pins, their facts, the knobs of several pools."""

from dataclasses import replace

from cost_models.engines import Facts
from cost_models.errors import BadInput
from cost_models.mesh import SCHEDULES
from cost_models.operators.context import KINDS
from cost_models.schedule.names import ScheduleName
from cost_models.specs.pools import devices_of, pool_clusters
from cost_models.specs.strategy import DEFAULT_ORDER
from planner.pools import Pools
from planner.restrictions import Restrictions, Values
from planner.search.mixed.placements import Placement, placements
from planner.situation import Situation

SCHEDULES_ON_POOLS = (ScheduleName.ONE_F_ONE_B, ScheduleName.GPIPE, ScheduleName.INTERLEAVED)
"""Schedules that are declared where a pipeline passes through several pools."""

ON_POOLS = (
    "where a pipeline passes through several groups: 1f1b, gpipe and interleaved, the order tp-cp-ep-dp-pp, one kind "
    "of context parallelism, no offload, no replicas; vpp 1: every cut; vpp above 1: every division of the layers over "
    "the groups, a group's stages of q and q + 1 layers, the longer ones first or last, up to 2 fewer on the first and "
    "on the last stage, and one K for all"
)
"""The space on several pools in words, as the certificate shows them."""

STAGE_ORDER = "-".join(DEFAULT_ORDER)


def placements_asked(pools: Pools, given: Restrictions) -> tuple[Placement, ...]:
    """The declared placements that pins and bans leave; raises BadInput where they name none."""
    cluster = pools.situation.cluster
    declared = placements(cluster, pools.usable)
    check_groups(given, cluster.name, tuple(place.text for place in declared))
    return tuple(place for place in declared if given.takes_text("groups", place.text))


def check_groups(given: Restrictions, cluster: str, declared: tuple[str, ...]) -> None:
    """Raises BadInput where a pin or ban names groups that are no declared placement."""
    for where, words in (("pins", given.pinned_words), ("bans", given.banned_words)):
        for text in words.get("groups", ()):
            if text not in declared:
                shown = f"use {', '.join(declared[:12])}" if declared else "its devices are all alike"
                detail = f"groups={text:.60} is no placement on {cluster}; {shown}"
                raise BadInput(detail, pointer=f"/search/{where}/groups", allowed=declared)


def facts_of(situation: Situation, place: Placement) -> Facts:
    """What legality depends on: equal devices stand for the groups of a placement."""
    stand_in = pool_clusters(situation.cluster, place.names)[0]
    sizes = tuple(devices_of(situation.cluster, (name,)) for name in place.names)
    if len(place.pools) > 1:
        return Facts(situation.model, stand_in, situation.job, runs=sizes)
    return Facts(situation.model, stand_in, situation.job, shared=sizes if len(sizes) > 1 else ())


def on_pools(given: Restrictions) -> Restrictions | None:
    """What the user restricts, and what is declared for several pools; None if that leaves nothing."""
    others = tuple((index, index) for index, name in enumerate(SCHEDULES) if name not in SCHEDULES_ON_POOLS)
    banned = given.bans["schedule"].ranges if "schedule" in given.bans else ()
    kinds = given.words("cp_kind", KINDS, every=KINDS)
    words = {"order": STAGE_ORDER, "offload": "none", "act_offload": "none"}
    words["cp_kind"] = kinds[0] if kinds else ""
    taken = {key: (word,) for key, word in words.items() if given.takes_text(key, word)}
    if len(taken) < len(words) or not given.takes("dp_replicate", 1):
        return None
    return replace(
        given,
        pins={**given.pins, "dp_replicate": Values(((1, 1),))},
        bans={**given.bans, "schedule": Values((*banned, *others))},
        pinned_words={**given.pinned_words, **taken},
    )


def add_values(space: dict[str, object], axis: str, values: object) -> None:
    """Values of an axis over all placements, each once."""
    known = space.get(axis)
    if not isinstance(values, list) or not isinstance(known, list):
        space.setdefault(axis, values)
        return
    more = [value for value in values if value not in known]
    numbers = all(isinstance(value, int) for value in known + more)
    space[axis] = sorted(known + more) if numbers else known + more
