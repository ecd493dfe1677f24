"""Accelerate's YAML (1.15): FSDP2, DDP, DeepSpeed inside it, with the Hugging Face Trainer around it."""
