"""Checkpoints that load under another layout: every tensor by its global name and shape, whoever held which part.

A checkpoint is a folder `step-N` of torch.distributed.checkpoint files and a manifest with the checksum of each,
written last; the folder gets its name when all of it is there. Reading folders needs no torch (`store`).
"""
