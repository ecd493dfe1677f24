"""Runs of chosen plans held against their predictions: `python -m planner.executor.measured cpu|gpu`."""
