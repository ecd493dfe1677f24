"""A ModelSpec becomes an nn.Module: one chunk of a pipeline at a time, tensor parallel by explicit collectives."""
