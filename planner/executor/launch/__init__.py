"""Starts the workers of a run: on this machine, or as a script that is written and not started."""

from planner.executor.launch.local import launch_local
from planner.executor.launch.script import write_script

__all__ = ["launch_local", "write_script"]
