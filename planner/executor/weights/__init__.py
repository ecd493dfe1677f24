"""Weights of Hugging Face directories: read box by box into any layout, written back shard by shard."""
