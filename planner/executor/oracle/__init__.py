"""Peak memory of a plan at real size without a device: the executor's own program over tensors without storage."""
