"""Every link between pipeline ranks may have seconds of its own: hand-walked, against one number, along paths."""

import numpy as np
import pytest

from cost_models.schedule import PipelineDurations, ScheduleName, critical_path, simulate

POINTS = [
    (ScheduleName.ONE_F_ONE_B, 3, 1, 5),
    (ScheduleName.ONE_F_ONE_B, 4, 1, 60),
    (ScheduleName.GPIPE, 3, 1, 4),
    (ScheduleName.INTERLEAVED, 2, 2, 8),
    (ScheduleName.INTERLEAVED, 3, 2, 30),
    (ScheduleName.ZB_H1, 3, 1, 7),
    (ScheduleName.ZB_V, 3, 2, 9),
]


def durations(rng, p, v, *more, link_s=None, send_s=0.0):
    forward, weight = rng.uniform(0.5, 2.0, (2, p, v, *more))
    backward = forward + weight
    parts = {"input_gradient_s": forward, "weight_gradient_s": weight}
    return PipelineDurations(forward, backward, send_s=send_s, link_s=link_s, **parts)


def test_two_links_are_walked_by_hand():
    # Three ranks, one micro-batch, forward 1, backward 2, links 10 and 100: down 1+10+1+100+1, up 2+100+2+10+2 = 229.
    ones = np.ones((3, 1))
    for schedule in (ScheduleName.ONE_F_ONE_B, ScheduleName.GPIPE):
        found = simulate(
            schedule, 3, 1, 1, PipelineDurations(ones, 2 * ones, link_s=np.array([10.0, 100, 7]))
        )
        assert found.rank_end_s.tolist() == [229.0, 217.0, 115.0]


def test_the_last_link_joins_the_last_rank_and_the_first():
    # Three ranks, two chunks, three micro-batches: chunk 1 of rank 0 waits for chunk 0 of rank 2 over the last link.
    ones = np.ones((3, 2))
    steps = [
        float(simulate(ScheduleName.INTERLEAVED, 3, 2, 3, PipelineDurations(ones, ones, link_s=link)).step_s)
        for link in (np.zeros(3), np.array([0.0, 0.0, 50.0]))
    ]
    # Every micro-batch crosses it twice; behind that nothing runs longer than the whole step did.
    assert 2 * 50.0 < steps[1] <= steps[0] + 2 * 50.0


@pytest.mark.parametrize(("schedule", "p", "v", "m"), POINTS)
def test_equal_links_are_one_number(schedule, p, v, m):
    rng = np.random.default_rng(3)
    one = durations(rng, p, v, send_s=0.3)
    rng = np.random.default_rng(3)
    links = durations(rng, p, v, link_s=np.full(p, 0.3))
    for extend in (True, False):
        expected = simulate(schedule, p, v, m, one, extend=extend).rank_end_s
        assert simulate(schedule, p, v, m, links, extend=extend).rank_end_s == pytest.approx(
            expected, rel=1e-12
        )


@pytest.mark.parametrize(("schedule", "p", "v", "m"), POINTS)
def test_batches_cycles_and_paths_agree(schedule, p, v, m):
    rng = np.random.default_rng(5)
    instances = 15  # above and below the size from which whole levels run at once
    many = durations(rng, p, v, instances, link_s=rng.choice([0.0, 0.1, 3.0], (p, instances)))
    whole = simulate(schedule, p, v, m, many, extend=False).rank_end_s
    assert simulate(schedule, p, v, m, many).rank_end_s == pytest.approx(whole, rel=1e-12)
    fields = ("forward_s", "backward_s", "input_gradient_s", "weight_gradient_s", "link_s")
    for column in range(3):
        single = PipelineDurations(**{name: getattr(many, name)[..., column] for name in fields})
        found = simulate(schedule, p, v, m, single)
        assert found.rank_end_s == pytest.approx(whole[:, column], rel=1e-12)
        path = critical_path(schedule, p, v, m, single)
        assert float(path.lower_bound_s(single)) == pytest.approx(float(found.step_s), rel=1e-12)


def test_links_need_one_entry_for_each_rank():
    ones = np.ones((3, 1))
    with pytest.raises(ValueError, match=r"link_s has shape \(2,\); use shape \(3,\)"):
        PipelineDurations(ones, ones, link_s=np.zeros(2))
