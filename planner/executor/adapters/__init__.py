"""Low-rank adapters beside frozen linears (LoRA, Hu et al. 2021), put into a built chunk, and written as PEFT does."""
