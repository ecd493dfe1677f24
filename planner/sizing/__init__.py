"""How many devices for so many tokens in so many days, and at what price."""

from planner.sizing.request import SizeCluster, SizeRequest
from planner.sizing.size import SizeReport, size

__all__ = ["SizeCluster", "SizeReport", "SizeRequest", "size"]
