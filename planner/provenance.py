"""What a prediction rests on."""

from dataclasses import dataclass, field

import numpy as np

from cost_models.mesh import batch_of, distinct_points, mesh_key
from cost_models.operators.curves import REST
from cost_models.pricing import Pricer
from cost_models.roofline import (
    Uncertainty,
    group_columns,
    kernel_seconds,
    measured_curve,
    stack_kernels,
)
from cost_models.roofline.generations import AUTOMATIC
from cost_models.rows import model_rows
from cost_models.specs.device import DeviceSpec
from cost_models.specs.strategy import Strategy
from planner.situation import Situation

MEASURED = "measured"
DATASHEET = "datasheet"


@dataclass(slots=True)
class KernelUse:
    """Seconds of the kernels of a layout by family: those from curves of the device's profile, those of them beyond the
    measured sizes, and those from the formula."""

    measured_s: dict[str, float] = field(default_factory=dict)
    outside_s: dict[str, float] = field(default_factory=dict)
    formula_s: dict[str, float] = field(default_factory=dict)

    @property
    def total_s(self) -> float:
        """All of them."""
        return sum(self.measured_s.values()) + sum(self.formula_s.values())

    def words(self, kind: str) -> str:
        """Every family with where its times come from; `kind` is that of the formula."""
        found = {
            name: MEASURED + (" (beyond its sizes)" if self.outside_s.get(name) else "")
            for name in self.measured_s
        }
        for name in self.formula_s:
            found[name] = f"{found[name]} in part, else {kind}" if name in found else kind
        return ", ".join(f"{name} {found[name]}" for name in sorted(found))


def provenance(situation: Situation, pricer: Pricer, strategy: Strategy | None = None) -> dict[str, str]:
    """measured, fitted or datasheet for each kind of number, and the software generation of the compute times.

    Where the device has a profile, also its name and hash and the families of kernels that it prices in this layout.
    """
    device = pricer.cluster.device
    plain = {
        "compute": pricer.efficiency.kind if _architecture_ran(device, situation.uncertainty) else DATASHEET,
        "compute_runs": _runs(device, situation.uncertainty),
        "communication": pricer.network.kind,
        "memory": "derived",
        "device_capacity": device.capacity_bytes.kind,
        "device_bandwidth": device.memory_bytes_per_s.kind,
        "software_generation": _generation(situation),
    }
    return plain if strategy is None else plain | _of_profile(pricer, strategy)


def _architecture_ran(device: DeviceSpec, known: Uncertainty) -> bool:
    """Whether constants were fitted to runs of the device's architecture."""
    return device.architecture in known.fitted_architectures


def _runs(device: DeviceSpec, known: Uncertainty) -> str:
    """Which published runs the times of a device's kernels rest on."""
    if not _architecture_ran(device, known):
        return f"none of {device.architecture}: its datasheet, and what others keep of theirs"
    if any(device.name in support.devices for support in known.kinds.values()):
        return f"of {device.name}"
    return f"of other {device.architecture} devices"


def kernel_use(pricer: Pricer, strategy: Strategy) -> KernelUse:
    """Where the seconds of a layout's kernels come from, one micro-batch of every kind of layer on one rank."""
    meshes = batch_of([strategy], mesh_key(strategy))
    points, _ = distinct_points(meshes)
    style = pricer.style(meshes.key.cp_kind)
    walks = [
        pricer.walk(layer, points, style)
        for row in model_rows(pricer.model, pricer.job).rows
        for layer in row
    ]
    kernels = [kernel for walk in walks for kernel in walk.kernels]
    table = stack_kernels(kernels, [name for walk in walks for name in walk.kernel_curves])
    precision = pricer.job.precision.value
    seconds = kernel_seconds(table, pricer.cluster.device, pricer.efficiency, precision)
    found = KernelUse()
    for group in table.groups:
        own = float(np.sum(seconds[table.order[group.rows]]))
        name = group.curve.removesuffix(REST)
        curve = measured_curve(group, pricer.efficiency, precision)
        if curve is None:
            found.formula_s[name] = found.formula_s.get(name, 0.0) + own
            continue
        found.measured_s[name] = found.measured_s.get(name, 0.0) + own
        if bool(curve.outside(group_columns(table, group.rows)).any()) and own > 0.0:
            found.outside_s[name] = found.outside_s.get(name, 0.0) + own
    return found


def profile_warnings(pricer: Pricer, strategy: Strategy) -> tuple[str, ...]:
    """What to know of the profile behind a prediction: that it was cut short, and what lies beyond its sizes."""
    measured = pricer.efficiency.measured
    if measured is None:
        return ()
    found, warnings = kernel_use(pricer, strategy), []
    if not measured.complete:
        warnings.append(
            f"profile {measured.profile} was cut short and is used as far as it goes; run planner profile again, "
            "with more --minutes"
        )
    share = sum(found.outside_s.values()) / found.total_s if found.total_s > 0.0 else 0.0
    if share > 0.01:
        names = ", ".join(sorted(found.outside_s))
        warnings.append(
            f"{100 * share:.0f} % of the kernels' time is beyond the sizes of profile {measured.profile} ({names}); "
            "run planner profile --model with this model"
        )
    return tuple(warnings)


def _of_profile(pricer: Pricer, strategy: Strategy) -> dict[str, str]:
    """What a device's own profile gives of a prediction; nothing where it has none."""
    measured, messages = pricer.efficiency.measured, pricer.network.measured
    found: dict[str, str] = {}
    if measured is not None:
        found["measured_profile"] = measured.profile
        use = kernel_use(pricer, strategy)
        if not use.formula_s:
            found["compute"] = MEASURED
        found["compute_families"] = use.words(pricer.efficiency.kind)
    if messages is not None:
        found["measured_profile"] = messages.profile
        found["communication_families"] = ", ".join(
            f"{collective.value} measured for {', '.join(str(n) for n in sorted(curves))} ranks"
            for collective, curves in sorted(messages.curves.items())
        )
    return found


def _generation(situation: Situation) -> str:
    """The generation's name; told apart where nobody asked for it."""
    name = situation.generation.name
    return f"{name} (current)" if situation.engine.options.generation == AUTOMATIC else name
