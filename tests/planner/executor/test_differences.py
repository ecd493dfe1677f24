"""How far two runs are apart: relative to each tensor, small ones to the largest, rounding left out, gaps infinite."""

import math

import torch

from planner.executor.differences import Worst, compare_gradients, compare_parameters, rounding_names


def gradients_apart(found: list[float], expected: list[float]) -> float:
    """Largest difference of a tensor beside one whose largest element is 1."""
    worst = Worst()
    reference = {"a": torch.tensor(expected), "large": torch.ones(1)}
    compare_gradients({"a": torch.tensor(found)}, reference, worst)
    return worst.value


def test_differences_are_relative_to_the_largest_element() -> None:
    # |0.5 - 0.4| / 0.5 = 0.2
    assert math.isclose(gradients_apart([0.4, 0.25], [0.5, 0.25]), 0.2, rel_tol=1e-5)


def test_small_gradients_are_held_against_a_share_of_the_largest() -> None:
    # 1e-8 / (1e-4 x 1) = 1e-4, although the tensor itself differs by all of its size
    assert math.isclose(gradients_apart([2e-8], [1e-8]), 1e-4, rel_tol=1e-5)


def test_what_is_no_number_is_the_worst() -> None:
    assert math.isnan(gradients_apart([math.nan], [0.5]))
    worst = Worst()
    worst.see(math.nan, "a")
    worst.see(0.5, "b")
    assert math.isnan(worst.value)


def test_a_tensor_without_a_partner_is_infinitely_apart() -> None:
    worst = Worst()
    compare_gradients({"b": torch.ones(1)}, {"a": torch.ones(1)}, worst)
    assert worst.value == math.inf
    compare_parameters({"a": torch.ones(2)}, {"a": torch.ones(1)}, (), worst)
    assert worst.value == math.inf


def test_parameters_moved_by_rounding_are_left_out() -> None:
    steps = [{"a": torch.tensor([1.0]), "key_bias": torch.tensor([1e-9])}]
    assert rounding_names(steps) == {"key_bias"}
    assert rounding_names([*steps, {"a": torch.tensor([1.0]), "key_bias": torch.tensor([0.1])}]) == set()
    worst = Worst()
    values = {"a": torch.tensor([1.0]), "key_bias": torch.tensor([1.0])}
    compare_parameters({**values, "key_bias": torch.tensor([-1.0])}, values, {"key_bias"}, worst)
    assert worst.value == 0.0
