"""DualPipe operation lists: two streams of micro-batches that meet, a forward of one beside a backward of the other.

    dualpipe-v  one model in a V over p ranks; a rank's near chunk is stage `rank`, its far one 2 p - 1 - rank
    dualpipe    DeepSeek-AI 2024, arXiv 2412.19437, section 3.2.1 and figure 5: p ranks and two copies of every
                parameter, half of the micro-batches enter at either end

A rank of dualpipe and the one it mirrors do what one rank of dualpipe-v with p / 2 ranks does: the second half of
a V is the other direction.  Both hold 2 p' + 1 chunk activations at most, p' the ranks of the V; the report's
bubble is (PP / 2 - 1) (F&B + B - 3 W) with B = I + W.

The first stage runs whole backwards, as in `zero_bubble`.

The lists run the forward of a pair before its backward.  Where the two run side by side the pair is one piece of work,
shorter by what they hide of each other's communication, and hands both results on at its end: all of its seconds are
`PipelineDurations.paired_forward_s`, and `paired_backward_s` is 0.  The bubble is then at
most the report's; one after the other it is (p' - 1) (F + I - W), as the forward's tensor leaves earlier.
"""

from cost_models.schedule.rank_list import Operation, RankList


def dualpipe_v_operations(p: int, m: int, rank: int) -> list[Operation]:
    """Operations of one rank of dualpipe-v, of m >= 2 p micro-batches."""
    near, far, after = 0, 1, p - 1 - rank
    listed = RankList()
    for _ in range(2 * after):
        listed.forward(near)
    for _ in range(rank + 1):
        listed.forward(near)
        listed.forward(far)
    for _ in range(after):
        listed.input_gradient(far)
        listed.weight_gradient()
        listed.forward(far)
    for _ in range(m - 2 * p + rank + 1):
        listed.forward(near)
        listed.backward(far)
        listed.forward(far)
        listed.backward(near)
    for _ in range(after):
        listed.backward(far)
        listed.forward(far)
        listed.backward(near)
    _drain(listed, after, rank)
    return listed.joined(near) if rank == 0 else listed.operations


def _drain(listed: RankList, after: int, rank: int) -> None:
    """The last backwards; the second half of 2 (rank + 1) is split, and its weight gradients fill the gaps."""
    near, far = 0, 1
    for number in range(2 * (rank + 1)):
        back = listed.input_gradient if number > rank else listed.backward
        back(far if number % 2 == 0 else near)
    for _ in range(after):
        listed.weight_gradient()
        listed.input_gradient(near)
    for _ in range(rank + 1):
        listed.weight_gradient()


def dualpipe_operations(p: int, m: int, rank: int) -> list[Operation]:
    """Operations of one rank of dualpipe; chunk 1 runs the odd micro-batches, from the last rank to the first."""
    half = p // 2
    mirrored = rank >= half
    listed = dualpipe_v_operations(half, m // 2, p - 1 - rank if mirrored else rank)
    return [_of_direction(operation, operation.chunk ^ mirrored) for operation in listed]


def _of_direction(operation: Operation, direction: int) -> Operation:
    return Operation(operation.phase, 2 * operation.micro_batch + direction, direction)
