"""Chrome traces of a simulated step."""

import json

import numpy as np

from cost_models.schedule import PipelineDurations, ScheduleName, chrome_trace, simulate_operations


def test_trace_has_one_event_per_operation_in_microseconds():
    durations = PipelineDurations(np.array([[1.0], [1.0]]), np.array([[2.0], [2.0]]))
    events = chrome_trace(simulate_operations(ScheduleName.ONE_F_ONE_B, 2, 1, 4, durations))
    assert json.loads(json.dumps(events)) == events
    operations = [event for event in events if event["ph"] == "X"]
    assert len(operations) == 16
    # The last backward of rank 0 runs from 13 s to 15 s, see test_simulate.
    (last,) = [event for event in operations if event["name"] == "backward 3" and event["tid"] == 0]
    assert (last["ts"], last["dur"]) == (13e6, 2e6)
    assert last["args"] == {"micro_batch": 3, "chunk": 0}


def test_threads_are_named_by_rank():
    durations = PipelineDurations(np.ones((3, 1)), np.ones((3, 1)))
    events = chrome_trace(simulate_operations(ScheduleName.GPIPE, 3, 1, 2, durations))
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert names == {0: "pipeline rank 0", 1: "pipeline rank 1", 2: "pipeline rank 2"}


def test_operations_of_a_rank_do_not_overlap():
    rng = np.random.default_rng(3)
    durations = PipelineDurations(rng.random((4, 2)), rng.random((4, 2)), send_s=0.1)
    timeline = simulate_operations(ScheduleName.INTERLEAVED, 4, 2, 24, durations)
    for rank in range(4):
        mine = timeline.rank == rank
        assert (timeline.start_s[mine][1:] >= timeline.end_s[mine][:-1]).all()
