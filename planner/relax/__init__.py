"""Why nothing fits, and the smallest changes that make something fit: arithmetic first, then trial evaluations."""

from planner.relax.answer import nearest_batches, relaxations
from planner.relax.lack import lack_text
from planner.relax.leanest import leanest

__all__ = ["lack_text", "leanest", "nearest_batches", "relaxations"]
