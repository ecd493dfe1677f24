"""Zero-bubble operation lists: the backward in two, the weight gradient put where a rank would wait.

zb-h1  Qi et al. 2023, arXiv 2401.10241, section 2.1 and figure 3: 1F1B whose rank i runs the weight
       gradient of a micro-batch i input gradients later, so that every rank holds as many micro-batches as
       rank 0 of 1F1B; bubble (p - 1) (F + I - W) instead of (p - 1) (F + I + W).
zb-v   Qi et al. 2024, arXiv 2405.15362, section 3.2 and figure 4 (V-ZB): two chunks a rank in a V, 2 p chunk
       activations on every rank, what 1F1B holds on rank 0; no bubble but the ramp when F = I = W.
"""

from cost_models.schedule.rank_list import Operation, RankList


def zb_h1_operations(p: int, m: int, rank: int) -> list[Operation]:
    """Operations of one rank of zb-h1."""
    listed = RankList()
    for _ in range(min(p - 1 - rank, m)):
        listed.forward(0)
    for number in range(m):
        if listed.forwards[0] < m:
            listed.forward(0)
        listed.input_gradient(0)
        if number >= rank:
            listed.weight_gradient()
    listed.weight_gradients(0)
    return listed.joined(0) if rank == 0 else listed.operations


def zb_v_operations(p: int, m: int, rank: int) -> list[Operation]:
    """Operations of one rank of zb-v; of few micro-batches, what is left of the shortest full list."""
    full = max(m, 2 * p - 1)
    listed = RankList()
    _zb_v_warm_up(listed, p, rank)
    while listed.forwards[1] < listed.forwards[0] or listed.forwards[0] < full:
        if listed.forwards[0] < full:
            listed.forward(0)
        for chunk in (0, 1):
            if chunk == 1:
                listed.forward(1)
            listed.input_gradient(chunk)
            listed.weight_gradient()
    for _ in range(rank):
        listed.input_gradient(0)
        listed.input_gradient(1)
    for _ in range(p - rank):
        listed.input_gradient(0)
        listed.weight_gradient(0)
    listed.weight_gradients(1)
    listed.weight_gradients(0)
    whole = listed.joined(0) if rank == 0 else listed.operations
    return [operation for operation in whole if operation.micro_batch < m]


def _zb_v_warm_up(listed: RankList, p: int, rank: int) -> None:
    for _ in range(2 * (p - rank) - 1):
        listed.forward(0)
    for _ in range(rank):
        listed.forward(1)
        listed.forward(0)
    for _ in range(p - rank):
        listed.forward(1)
        listed.input_gradient(1)
        listed.weight_gradient()
