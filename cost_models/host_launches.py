"""What the host adds to a layer's passes: modules that it must launch, and regions that it enters again."""

from typing import Final

import numpy as np

from cost_models.chunk import Array
from cost_models.layer_walk import LayerWalk
from cost_models.operators.base import Phase
from cost_models.roofline import Efficiency

PassParts = tuple[Array, Array, Array, Array, Array]
"""Seconds of forward, backward, weight gradients, base recompute and what a full one spares, (causes, U) each."""

FORWARD_LAUNCHES: Final = 0.4
"""[Empirical] share of an operator's host work that is forward: a layer on V100 that the host launches in 12.7 ms takes
4.5 more with its forward again (profiles/published, v100-076 and v100-081)."""


def add_launches(walk: LayerWalk, parts: PassParts, efficiency: Efficiency, *, by_module: bool) -> None:
    """Lengthen the passes of a layer in place to what the host needs.

    A recomputed region costs `region_s` on top. Where every operator is a module (`by_module`), forward and backward
    take at least operators x `module_s`, of which FORWARD_LAUNCHES is forward, and again what a base recompute runs;
    the host's own part of exchanging experts' tokens (`exchange_s`) comes beside either.
    """
    forward, backward, _, base, _ = parts
    regions_s = walk.regions * efficiency.region_s
    base[0] += regions_s
    backward[0] += regions_s
    if not by_module:
        return
    again = len({name for name, share in zip(walk.kernel_ops, walk.kernel_again, strict=True) if share > 0.0})
    backward_launches = (1.0 - FORWARD_LAUNCHES) * walk.modules + FORWARD_LAUNCHES * again
    for one, launches, is_forward in (
        (forward, FORWARD_LAUNCHES * walk.modules, True),
        (backward, backward_launches, False),
    ):
        device_s = one.sum(0) - _exchanges(walk, is_forward) * efficiency.exchange_s
        one[0] += np.maximum(launches * efficiency.module_s - device_s, 0.0)


def _exchanges(walk: LayerWalk, is_forward: bool) -> int:
    """Exchanges of experts' tokens of a pass, those of a base recompute included."""
    return sum(
        (message.phase is Phase.FORWARD) is is_forward or (again and not is_forward)
        for message, again in zip(walk.messages, walk.message_again, strict=True)
        if message.overlap_class == "ep_dispatch"
    )
