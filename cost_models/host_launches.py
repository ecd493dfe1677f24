"""What the host adds to a layer's passes: modules that it must launch, and regions that it enters again."""

from typing import Final

import numpy as np

from cost_models.chunk import TIME_CAUSES, Array
from cost_models.layer_walk import LayerWalk
from cost_models.roofline import Efficiency

PassParts = tuple[Array, Array, Array, Array, Array]
"""Seconds of forward, backward, weight gradients, base recompute and what a full one spares, (causes, U) each."""

FORWARD_LAUNCHES: Final = 0.4
"""[Empirical] share of an operator's host work that is forward: a layer on V100 that the host launches in 12.7 ms takes
4.5 more with its forward again (profiles/published, v100-076 and v100-081)."""


EXCHANGES: Final = TIME_CAUSES.index("ep_communication")
"""Exchanges of experts wait for the host to know how many tokens go where: it launches nothing ahead of them."""


def add_launches(walk: LayerWalk, parts: PassParts, efficiency: Efficiency, *, by_module: bool) -> None:
    """Lengthen the passes of a layer in place to what the host needs.

    A recomputed region costs `region_s` on top. Where every operator is a module (`by_module`), forward and backward
    take at least operators x `module_s`, of which FORWARD_LAUNCHES is forward, and again what a base recompute runs.
    """
    forward, backward, _, base, _ = parts
    regions_s = walk.regions * efficiency.region_s
    base[0] += regions_s
    backward[0] += regions_s
    if not by_module:
        return
    again = len({name for name, share in zip(walk.kernel_ops, walk.kernel_again, strict=True) if share > 0.0})
    backward_launches = (1.0 - FORWARD_LAUNCHES) * walk.modules + FORWARD_LAUNCHES * again
    for one, launches in ((forward, FORWARD_LAUNCHES * walk.modules), (backward, backward_launches)):
        ahead_of = one.sum(0) - one[EXCHANGES]
        one[0] += np.maximum(launches * efficiency.module_s - ahead_of, 0.0)
