"""Answers read back from their JSON objects, as another planner sent them: the numbers are those that were sent."""
