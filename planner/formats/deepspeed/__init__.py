"""DeepSpeed's JSON with the Hugging Face Trainer around it, read and written (DeepSpeed 0.14 to 0.19)."""
