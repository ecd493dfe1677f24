"""Why nothing fits, and the smallest changes that make something fit: arithmetic first, then trial evaluations."""

from planner.relax.answer import nearest_batches, relaxations
from planner.relax.leanest import leanest

__all__ = ["leanest", "nearest_batches", "relaxations"]
