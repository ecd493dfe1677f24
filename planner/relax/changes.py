"""Changes of a request that may make it fit, in the order of what they cost the user.

free: nothing but a setting. restriction: a pin, ban or choice of the user's own. numerics: smaller types of states.
hardware: more or larger devices. training: what is trained changes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cost_models.errors import BadInput
from cost_models.profiles import list_devices, load_device
from cost_models.specs.device import DeviceSpec
from cost_models.specs.trainable import ALL
from planner.request import SearchRequest
from planner.restrictions import ALLOWED
from planner.situation import Situation, situate

FREE: Final[tuple[tuple[str, object], ...]] = (
    ("engine.expandable_segments", True),
    ("engine.fused_cross_entropy", True),
)
NUMERICS: Final[tuple[tuple[str, object], ...]] = (
    ("engine.grad_dtype", "bf16"),
    ("engine.moment_dtype", "bf16"),
)
SHARDED: Final[tuple[tuple[str, object], ...]] = (("engine.megatron_fsdp", True),)
DEVICE_FACTORS: Final = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
SHORTER: Final = (2, 4, 8)
UNSHARDED: Final = ("ddp", "parameter_server")
"""Engines that keep all states on every device."""
LARGER_DEVICES: Final = 3
LARGER: Final = 1.2
"""A device counts as larger with this many times the memory."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change: its kind, its name, and the request that it makes; of changes with one `key` only the first that
    helps is of use."""

    cost: str
    name: str
    situation: Situation
    search: SearchRequest
    key: str


@dataclass(frozen=True, slots=True)
class Asked:
    """The request that is to be changed."""

    situation: Situation
    search: SearchRequest

    def job(self, cost: str, key: str, value: object) -> Iterator[Change]:
        """One value of the job changed; nothing where the engine or the model refuses it."""
        job = self.situation.job_request
        values: dict[str, object] = {key: value}
        if "." in key:
            values = {"options": dict(job.options) | {key: value}}
        try:
            changed = situate(
                self.situation.model,
                self.situation.cluster,
                job.model_validate(job.model_dump() | values),
            )
        except BadInput:
            return
        shown = str(value).lower() if isinstance(value, bool) else value
        yield Change(cost, f"{key}={shown}", changed, self.search, key)

    def devices(self, count: int) -> Iterator[Change]:
        """Another number of equal devices."""
        try:
            cluster = self.situation.cluster.with_devices(count)
            changed = situate(self.situation.model, cluster, self.situation.job_request)
        except BadInput:
            return
        yield Change("hardware", f"devices={count}", changed, self.search, "devices")

    def nodes(self, factor: int) -> Iterator[Change]:
        """So many times the nodes of every device group."""
        cluster = self.situation.cluster
        groups = tuple(group.with_devices(group.num_devices * factor) for group in cluster.groups)
        most = cluster.tiers[-1].devices_per_domain * factor
        outer = cluster.tiers[-1].model_copy(update={"devices_per_domain": most})
        larger = cluster.model_copy(update={"groups": groups, "tiers": (*cluster.tiers[:-1], outer)})
        try:
            changed = situate(self.situation.model, larger, self.situation.job_request)
        except BadInput:
            return
        name = f"{factor} times the nodes of every group ({larger.num_devices} devices)"
        yield Change("hardware", name, changed, self.search, "devices")

    def device(self, device: DeviceSpec) -> Iterator[Change]:
        """Another device in the same places."""
        cluster = self.situation.cluster
        groups = tuple(group.model_copy(update={"device": device}) for group in cluster.groups)
        try:
            changed = situate(
                self.situation.model,
                cluster.model_copy(update={"groups": groups}),
                self.situation.job_request,
            )
        except BadInput:
            return
        yield Change("hardware", f"device={device.name}", changed, self.search, "device")

    def looser(self) -> Iterator[Change]:
        """The request without one of the user's pins or bans, or without the user's own limits of memory."""
        for key, value in self.search.pins.items():
            left = {name: pinned for name, pinned in self.search.pins.items() if name != key}
            search = self.search.model_copy(update={"pins": left})
            shown = str(value).lower() if isinstance(value, bool) else value
            yield Change("restriction", f"without pin {key}={shown}", self.situation, search, f"pin {key}")
        for ban in self.search.bans:
            bans = tuple(other for other in self.search.bans if other != ban)
            search = self.search.model_copy(update={"bans": bans})
            yield Change("restriction", f"without ban {ban}", self.situation, search, f"ban {ban}")
        if not self.search.allow_at_risk:
            search = self.search.model_copy(update={"allow_at_risk": True})
            yield Change("restriction", "allow_at_risk=true", self.situation, search, "allow_at_risk")
        if self.situation.job.options.reserve_bytes:
            yield from self.job("restriction", "job.reserve_bytes", 0.0)

    def offloading(self) -> Iterator[Change]:
        """Activations on the host too, where the engine can; offload of states is tried unasked."""
        space = self.situation.engine.space(self.situation.model, self.situation.job)
        if space.act_offload and not {"offload", "act_offload"} & set(self.search.pins):
            pins = {**self.search.pins, "act_offload": ALLOWED}
            search = self.search.model_copy(update={"pins": pins})
            yield Change("restriction", "pin act_offload=allowed", self.situation, search, "act_offload")


def changes(asked: Asked) -> Iterator[Change]:
    """Every single change, in the order of what it costs."""
    job = asked.situation.job_request
    yield from _settings(asked, "free", FREE)
    yield from asked.looser()
    engine = job.engine.partition("@")[0]
    if engine == "megatron":
        yield from _settings(asked, "restriction", SHARDED)
    if engine in UNSHARDED:
        yield from asked.job("restriction", "engine", "fsdp2")
    yield from _settings(asked, "numerics", NUMERICS)
    if job.optimizer.value == "adamw":
        yield from asked.job("numerics", "optimizer", "adam8bit")
    yield from asked.offloading()
    yield from _hardware(asked)
    yield from _larger(asked)
    yield from _shorter(asked)
    if asked.situation.job.trainable == ALL:
        for adapters in ("lora:r=16", "qlora:r=16"):
            yield from asked.job("training", "job.trainable", adapters)


def _settings(asked: Asked, cost: str, options: tuple[tuple[str, object], ...]) -> Iterator[Change]:
    """Options that are not set to these values yet."""
    now = asked.situation.job_request.options
    for key, value in options:
        if now.get(key) != value:
            yield from asked.job(cost, key, value)


def _shorter(asked: Asked) -> Iterator[Change]:
    """Shorter sequences, then smaller batches."""
    job = asked.situation.job_request
    for key, now in (("seq_len", job.seq_len or 0), ("global_batch", job.global_batch)):
        for part in SHORTER:
            if now >= part:
                yield from asked.job("training", key, now // part)


def _hardware(asked: Asked) -> Iterator[Change]:
    """More devices of the same kind, then larger ones in their places."""
    cluster = asked.situation.cluster
    for factor in DEVICE_FACTORS:
        if len(cluster.groups) == 1:
            yield from asked.devices(cluster.num_devices * factor)
        else:
            yield from asked.nodes(factor)
    yield from (change for device in larger_devices(asked.situation) for change in asked.device(device))


def _larger(asked: Asked) -> Iterator[Change]:
    """More devices with the next batch that divides over them, where the batch asked for does not."""
    devices, batch = asked.situation.cluster.num_devices, asked.situation.job.global_batch
    for count in (devices * factor for factor in DEVICE_FACTORS):
        if batch % count == 0 or len(asked.situation.cluster.groups) > 1:
            continue
        for more in asked.devices(count):
            whole = -(-batch // count) * count
            for both in Asked(more.situation, more.search).job("training", "global_batch", whole):
                yield Change("training", f"{more.name}, {both.name}", both.situation, both.search, "devices")


def larger_devices(situation: Situation) -> tuple[DeviceSpec, ...]:
    """Devices of the same vendor that hold more and compute the precision at least as fast, the smallest first."""
    now, precision = situation.cluster.device, situation.job.precision.value
    if now.architecture == "cpu":
        return ()
    known = (load_device(name) for name in list_devices())
    able = [
        device
        for device in known
        if device.vendor == now.vendor
        and device.supports(precision)
        and device.capacity_bytes.value >= LARGER * now.capacity_bytes.value
        and device.peak(precision) >= now.peak(precision)
    ]
    return tuple(sorted(able, key=lambda device: device.capacity_bytes.value)[:LARGER_DEVICES])
