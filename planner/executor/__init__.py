"""Runs a plan on torch.distributed and says how what ran compares with what was predicted."""
