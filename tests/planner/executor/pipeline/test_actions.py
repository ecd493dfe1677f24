"""Operation lists with messages: nothing is lost, and no two ranks wait for each other."""

import pytest

from cost_models.schedule import Phase, ScheduleName, operations
from planner.executor.pipeline.actions import Cargo, Receive, Run, Send, rank_actions

POINTS = [
    ("gpipe", 4, 1, 6),
    ("1f1b", 2, 1, 1),
    ("1f1b", 4, 1, 9),
    ("interleaved", 2, 2, 4),
    ("interleaved", 4, 3, 8),
    ("zb-h1", 4, 1, 9),
    ("zb-v", 2, 2, 1),
    ("zb-v", 4, 2, 9),
    ("dualpipe-v", 2, 2, 4),
    ("dualpipe-v", 4, 2, 11),
    ("dualpipe", 4, 2, 12),
]


@pytest.fixture(params=POINTS, ids=lambda point: "-".join(map(str, point)))
def point(request):
    schedule, p, v, m = request.param
    return ScheduleName(schedule), p, v, m


def test_two_ranks_of_1f1b():
    first, last = rank_actions(ScheduleName.ONE_F_ONE_B, 2, 1, 2)
    assert [_text(action) for action in first] == [
        "F0", "output 0.0 to 1", "F1", "output 0.1 to 1", "gradient 0.0 from 1", "B0", "gradient 0.1 from 1", "B1",
    ]  # fmt: skip
    assert [_text(action) for action in last] == [
        "output 1.0 from 0", "F0", "output 1.1 from 0", "B0", "gradient 1.0 to 0", "F1", "B1", "gradient 1.1 to 0",
    ]  # fmt: skip


def _text(action):
    if isinstance(action, Run):
        return f"{action.operation.phase.name[0]}{action.operation.micro_batch}"
    way = "to" if isinstance(action, Send) else "from"
    return f"{action.cargo} {action.stage}.{action.micro_batch} {way} {action.peer}"


def test_operations_are_the_list_in_its_order(point):
    for actions, listed in zip(rank_actions(*point), operations(*point), strict=True):
        assert tuple(each.operation for each in actions if isinstance(each, Run)) == listed


def test_two_ranks_name_their_messages_in_one_order(point):
    everyone = rank_actions(*point)
    for rank, actions in enumerate(everyone):
        for peer, others in enumerate(everyone):
            mine = [(_message(each), type(each)) for each in actions if _is_with(each, peer)]
            theirs = [(_message(each), _OTHER[type(each)]) for each in others if _is_with(each, rank)]
            assert mine == theirs


_OTHER = {Send: Receive, Receive: Send}


def _is_with(action, rank):
    return not isinstance(action, Run) and action.peer == rank


def _message(action):
    """What is carried, by the stage that sends it."""
    step = 1 if action.cargo is Cargo.OUTPUT else -1
    stage = action.stage if isinstance(action, Send) else action.stage - step
    return action.cargo, stage, action.micro_batch


def test_ranks_that_wait_for_every_message_at_once_come_to_the_end(point):
    # The hardest case: a send returns only when the other rank has come to its receive.
    left = [list(actions) for actions in rank_actions(*point)]
    moved = True
    while moved:
        moved = False
        for rank, actions in enumerate(left):
            while actions and isinstance(actions[0], Run):
                actions.pop(0)
                moved = True
            peer = left[actions[0].peer] if actions else []
            if peer and _is_with(peer[0], rank) and _message(peer[0]) == _message(actions[0]):
                actions.pop(0)
                peer.pop(0)
                moved = True
    assert not any(left)


def test_a_pass_has_its_data_before_it_and_sends_after_it(point):
    for actions in rank_actions(*point):
        done, received = set(), set()
        for each in actions:
            if isinstance(each, Receive):
                received.add((each.cargo, each.stage, each.micro_batch))
            elif isinstance(each, Send):
                assert (each.cargo, each.stage, each.micro_batch) in done
            elif each.operation.phase is not Phase.WEIGHT_GRADIENT:
                forward = each.operation.phase is Phase.FORWARD
                cargo = Cargo.OUTPUT if forward else Cargo.GRADIENT
                source = each.stage + (-1 if forward else 1)
                needed = (cargo, each.stage, each.operation.micro_batch)
                local = (cargo, source, each.operation.micro_batch) in done
                assert needed in received or local or not 0 <= source <= _last(point)
                done.add((cargo, each.stage, each.operation.micro_batch))


def _last(point):
    schedule, p, v, _ = point
    return (p if schedule is ScheduleName.DUALPIPE else p * v) - 1
