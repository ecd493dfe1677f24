"""YAML of fine-tuning front ends, read only: LLaMA-Factory 0.9 and axolotl 0.21."""
