"""Why a plan is as it is, and why not another: explanations in seconds and bytes, by cause."""

from planner.explain.against import against
from planner.explain.contrast import Contrast
from planner.explain.differences import Difference, difference
from planner.explain.explanation import Explanation, explain

__all__ = ["Contrast", "Difference", "Explanation", "against", "difference", "explain"]
