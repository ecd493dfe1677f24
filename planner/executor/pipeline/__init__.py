"""Runs micro-batches through the chunks of a rank, in the order of the schedule's operation lists."""
