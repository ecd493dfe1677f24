"""Recipes around Megatron-Core: Megatron-Bridge overrides and NeMo 2 recipes, read and written as assignments.

Both frameworks hold Megatron-Core's own names in nested objects, so settings are translated to Megatron-LM's arguments
and read by the one reader of those.
"""
