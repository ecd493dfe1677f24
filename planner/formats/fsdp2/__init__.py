"""A plain Python module that applies a plan with torch's FSDP2 and DTensor, and reads back as it."""
