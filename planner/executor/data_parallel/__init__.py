"""Keeps the copies of a model in step: how gradients are reduced, states sharded, and parameters updated."""
