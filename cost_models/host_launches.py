"""What the host adds to a layer's passes: modules that it must launch, and regions that it enters again."""

from typing import Final

import numpy as np

from cost_models.chunk import Array
from cost_models.layer_walk import LayerWalk
from cost_models.operators.base import Axis, Collective, Phase
from cost_models.roofline import Efficiency

PassParts = tuple[Array, Array, Array, Array, Array]
"""Seconds of forward, backward, weight gradients, base recompute and what a full one spares, (causes, U) each."""

FORWARD_LAUNCHES: Final = 0.4
"""[Empirical] share of an operator's host work that is forward: a layer on V100 that the host launches in 12.7 ms takes
4.5 more with its forward again (profiles/published, v100-076 and v100-081)."""

COLLECTIVE_LAUNCHES: Final = {
    Collective.ALL_GATHER: 0.2,
    Collective.REDUCE_SCATTER: 0.2,
    Collective.ALL_REDUCE: 0.05,
}
"""[Empirical] host work of a tensor-parallel message, in modules. Blocks of Megatron-Core's tests whose devices idle
take at tp 2 in the median 4.3 ms on H100 with all-reduces, 5.4 with the ten messages of sequence parallelism (A100 6.4
and 7.7, GB200 6.7 and 7.6; profiles/published/megatron_ci.json): 0.19 to 0.29 of a module each. A reduction in place is
a launch and little else: tp 1, 2 and 4 with all-reduces differ by less than their repeats."""


def add_launches(
    walk: LayerWalk, message_s: Array, parts: PassParts, efficiency: Efficiency, *, by_module: bool
) -> None:
    """Lengthen the passes of a layer in place to what the host needs; `message_s` are seconds of its messages, (M, U).

    A recomputed region costs `region_s` on top. Where every operator is a module (`by_module`), forward and backward
    take at least operators x `module_s`, of which FORWARD_LAUNCHES is forward, and again what a base recompute runs,
    and COLLECTIVE_LAUNCHES of a module for every tensor-parallel message; the host's own part of exchanging experts'
    tokens (`exchange_s`) comes beside either.
    """
    forward, backward, _, base, _ = parts
    if by_module:
        again = len(
            {name for name, share in zip(walk.kernel_ops, walk.kernel_again, strict=True) if share > 0.0}
        )
        sent_forward, sent_backward = _collectives(walk, message_s)
        forward_launches = FORWARD_LAUNCHES * walk.modules + sent_forward
        backward_launches = (1.0 - FORWARD_LAUNCHES) * walk.modules + FORWARD_LAUNCHES * again + sent_backward
        _at_least(forward, forward_launches, _exchanges(walk, is_forward=True), efficiency)
        _at_least(backward, backward_launches, _exchanges(walk, is_forward=False), efficiency)
    regions_s = walk.regions * efficiency.region_s
    base[0] += regions_s
    backward[0] += regions_s


def _collectives(walk: LayerWalk, message_s: Array) -> tuple[Array, Array]:
    """Launches of tensor-parallel messages, in modules, forward and backward, (U,) each; what is not sent is none."""
    forward, backward = np.zeros(message_s.shape[1:]), np.zeros(message_s.shape[1:])
    for message, again, seconds in zip(walk.messages, walk.message_again, message_s, strict=True):
        if message.axis is not Axis.TP:
            continue
        launches = np.where(seconds > 0.0, COLLECTIVE_LAUNCHES.get(message.collective, 0.0), 0.0)
        if message.phase is Phase.FORWARD:
            forward = forward + launches
            backward = backward + (launches if again else 0.0)
        else:
            backward = backward + launches
    return forward, backward


def _at_least(pass_s: Array, launches: Array, exchanges: int, efficiency: Efficiency) -> None:
    """Lengthen a pass, (causes, U), to its launches and the host's part of its exchanges."""
    host_s = launches * efficiency.module_s + exchanges * efficiency.exchange_s
    pass_s[0] += np.maximum(host_s - pass_s.sum(0), 0.0)


def _exchanges(walk: LayerWalk, *, is_forward: bool) -> int:
    """Exchanges of experts' tokens of a pass, those of a base recompute included."""
    return sum(
        (message.phase is Phase.FORWARD) is is_forward or (again and not is_forward)
        for message, again in zip(walk.messages, walk.message_again, strict=True)
        if message.overlap_class == "ep_dispatch"
    )
