"""Legality of stages on device groups, and where stages lie when a strategy does not say.

A pipeline passes through device groups in an order, each once, every rank whole inside one group; or all of its ranks
share one pool of groups, each data-parallel replica whole inside one group. tp, cp and dp are those of every stage.
"""

from collections.abc import Iterator

import numpy as np

from cost_models.engines.rules import Facts, Rule, nearest_values
from cost_models.errors import Violation
from cost_models.mesh import Bool, MeshBatch
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.pools import (
    POOL_RULE,
    SHARED,
    Pool,
    devices_of,
    full_names,
    groups_text,
    members,
    pools_of,
)
from cost_models.specs.strategy import DEFAULT_ORDER, Strategy, StrategyRequest, divisors

REPLICA_ORDER = ("tp", "cp", "ep", "pp", "dp")
"""Order of the axes in which a replica's ranks are neighbours."""

_SOURCE = "devices of a pipeline rank are equal (docs/clusters.md)"


def group_rules() -> tuple[Rule, ...]:
    """Rules of strategies on clusters of several device groups."""
    return (Rule(POOL_RULE, _SOURCE, _broken, _sentence),)


def pool_violations(cluster: ClusterSpec, pools: tuple[Pool, ...], facts: Facts) -> Iterator[Violation]:
    """What is wrong with pools whatever the degrees: groups that are unknown, repeated, or cannot compute so."""
    names = [name for pool in pools for name in pool.groups]
    for name in dict.fromkeys(names):
        if name not in cluster.group_names:
            detail = f"groups names {name[:60]!r}, which is no device group of {cluster.name}"
            yield Violation(POOL_RULE, detail, cluster.group_names, _SOURCE)
        elif names.count(name) > 1:
            detail = f"groups passes through {name} {names.count(name)} times; give its ranks in one run"
            yield Violation(POOL_RULE, detail, (), _SOURCE)
        elif not cluster.device_of(*members(cluster, (name,))).supports(facts.job.precision.value):
            device = cluster.device_of(*members(cluster, (name,)))
            detail = f"precision {facts.job.precision.value} does not run on {device.title} of group {name}"
            usable = usable_groups(cluster, facts.job.precision.value)
            yield Violation(POOL_RULE, detail, tuple(f"groups of {one}" for one in usable), _SOURCE)
    if len(pools) > 1 and any(len(pool.groups) > 1 for pool in pools):
        detail = (
            f"groups={'+'.join(pool.text for pool in pools)} shares some ranks between groups and not others"
        )
        legal = ("+".join(names), SHARED.join(names))
        yield Violation(POOL_RULE, detail, legal, _SOURCE)


def usable_groups(cluster: ClusterSpec, precision: str) -> tuple[str, ...]:
    """Names of the groups whose devices compute in a precision."""
    names = enumerate(cluster.group_names)
    return tuple(name for index, name in names if cluster.device_of(index).supports(precision))


def pools_fit(cluster: ClusterSpec, pools: tuple[Pool, ...], meshes: MeshBatch) -> Bool:
    """Whether every group's devices make whole ranks, or whole replicas where groups share the ranks."""
    ranks = meshes.ranks_per_stage
    fits = np.ones(meshes.size, dtype=bool)
    for pool in pools:
        unit = ranks if len(pool.groups) == 1 else meshes.tp * meshes.cp * meshes.pp
        for index in members(cluster, pool.groups):
            fits &= cluster.groups[index].num_devices % unit == 0
    return fits


def order_fits(pools: tuple[Pool, ...], order: tuple[str, ...]) -> bool:
    """Whether the order of the axes keeps stages (several pools) or replicas (groups that share one) together."""
    if len(pools) > 1:
        return order[-1] == "pp"
    return len(pools[0].groups) == 1 or order.index("pp") < order.index("dp")


def _broken(facts: Facts, meshes: MeshBatch) -> Bool:
    cluster, key = facts.cluster, meshes.key
    if facts.runs or facts.shared:
        return _stands_apart(facts, meshes)
    if not cluster.is_mixed:
        return np.full(meshes.size, bool(key.pools))
    if not key.pools or any(True for _ in pool_violations(cluster, key.pools, facts)):
        return np.ones(meshes.size, dtype=bool)
    wrong = any(devices_of(cluster, pool.groups) != pool.devices for pool in key.pools)
    kept = np.full(meshes.size, order_fits(key.pools, key.order)) | (meshes.pp == 1)
    broken: Bool = ~pools_fit(cluster, key.pools, meshes) | wrong | ~kept
    return broken


def _stands_apart(facts: Facts, meshes: MeshBatch) -> Bool:
    """Meshes whose ranks or replicas do not lie whole in the groups that the cluster stands for."""
    bad = np.zeros(meshes.size, dtype=bool)
    for devices in facts.runs:
        bad |= devices % meshes.ranks_per_stage != 0
    for devices in facts.shared:
        bad |= devices % (meshes.tp * meshes.cp * meshes.pp) != 0
    order = meshes.key.order
    if facts.runs and order[-1] != "pp":
        bad[:] = True
    if facts.shared and order.index("pp") > order.index("dp"):
        bad |= meshes.pp > 1
    return bad


def _sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
    cluster = facts.cluster
    ranks = strategy.tp * strategy.cp * strategy.dp
    if not cluster.is_mixed:
        shown = groups_text(strategy.stage_groups)
        return f"groups={shown:.80} given, but all devices of {cluster.name} are alike", ("no groups",)
    pools = pools_of(strategy.stage_groups, ranks)
    for violation in pool_violations(cluster, pools, facts):
        return violation.detail, violation.nearest
    if len(strategy.stage_groups) != strategy.pp:
        detail = f"groups names {len(strategy.stage_groups)} pipeline ranks, but pp is {strategy.pp}"
        return detail, _legal_counts(cluster, pools, ranks)
    for pool in pools:
        held = devices_of(cluster, pool.groups)
        unit = ranks if len(pool.groups) == 1 else strategy.tp * strategy.cp * strategy.pp
        product = "tp x cp x dp" if len(pool.groups) == 1 else "tp x cp x pp"
        for index in members(cluster, pool.groups):
            devices = cluster.groups[index].num_devices
            if devices % unit:
                name = cluster.group_names[index]
                detail = f"the {devices} devices of {name} do not make whole parts of {product} = {unit}"
                common = [
                    cluster.groups[i].num_devices for one in pools for i in members(cluster, one.groups)
                ]
                return detail, nearest_values(product, divisors(int(np.gcd.reduce(common))), unit)
        if held != pool.devices:
            detail = (
                f"groups={pool.text}*{pool.devices // ranks} at tp x cp x dp = {ranks} uses {pool.devices} of the "
                f"{held} devices of {pool.text}; a group is used whole or not at all"
            )
            return detail, _legal_counts(cluster, pools, ranks)
    detail = f"order={'-'.join(strategy.order)} takes apart what lies on one device group"
    return detail, ("-".join(DEFAULT_ORDER if len(pools) > 1 else REPLICA_ORDER),)


def _legal_counts(cluster: ClusterSpec, pools: tuple[Pool, ...], ranks: int) -> tuple[str, ...]:
    """The same groups with as many ranks as their devices make, with the pp that follows."""
    counts = [(pool.text, devices_of(cluster, pool.groups) // ranks) for pool in pools]
    text = "+".join(f"{name}*{count}" for name, count in counts)
    return (f"pp={sum(count for _, count in counts)} groups={text}",) if all(c for _, c in counts) else ()


def stage_groups(facts: Facts, request: StrategyRequest) -> tuple[str, ...]:
    """Groups of every pipeline rank: as stated, or all groups in the order of the cluster.

    Groups stated once each without ranks get as many as their devices make. Where nothing is stated the pipeline passes
    through the groups if pp ranks of equal size make each of them up, and else all groups share all ranks; groups whose
    devices do not compute in the job's precision are left out.
    """
    cluster, pp = facts.cluster, request.pp or 1
    if request.groups is not None:
        if not cluster.is_mixed:
            return request.groups
        stated = tuple(full_names(text, cluster.group_names) for text in request.groups)
        bare = len(stated) != pp and len(set(stated)) == len(stated)
        return (_spread(cluster, stated, pp) if bare else stated) or stated
    if not cluster.is_mixed:
        return ()
    usable = usable_groups(cluster, facts.job.precision.value)
    return _spread(cluster, usable, pp) or (SHARED.join(usable),) * pp


def _spread(cluster: ClusterSpec, pools: tuple[str, ...], pp: int) -> tuple[str, ...]:
    """Ranks over pools in their order, each with as many as its devices make; none where they do not go in whole."""
    sizes = [devices_of(cluster, text.split(SHARED)) for text in pools]
    ranks, left = divmod(sum(sizes), pp)
    if left or any(size % ranks for size in sizes):
        return ()
    return tuple(text for text, size in zip(pools, sizes, strict=True) for _ in range(size // ranks))


def nearest_spreads(cluster: ClusterSpec, groups: tuple[str, ...], inner: int, pp: int) -> tuple[str, ...]:
    """Ways to lay a pipeline over the groups of `groups`, each with a run of its own, with pp near to the wanted one.

    A rank takes whole multiples of `inner` = tp x cp devices; where no such rank fits, the inner degrees that do.
    """
    names = [name for name in dict.fromkeys("/".join(groups).split(SHARED)) if name in cluster.group_names]
    sizes = [devices_of(cluster, (name,)) for name in names]
    common = divisors(int(np.gcd.reduce(sizes)))
    ranks = [unit for unit in common if unit % inner == 0]
    if not ranks:
        return nearest_values("tp x cp", common, inner)
    found = sorted({sum(sizes) // unit for unit in ranks}, key=lambda count: (abs(count - pp), count))[:2]
    spreads = [_spread(cluster, tuple(names), count) for count in found]
    return tuple(f"pp={len(spread)} groups={groups_text(spread)}" for spread in spreads)


def devices_in_use(cluster: ClusterSpec, groups: tuple[str, ...]) -> int:
    """Devices of the groups that pipeline ranks lie on; of the whole cluster where nothing is said."""
    names = dict.fromkeys(name for text in groups for name in text.split(SHARED))
    known = [name for name in names if name in cluster.group_names]
    return devices_of(cluster, known) if groups and cluster.is_mixed else cluster.num_devices
