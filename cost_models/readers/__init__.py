"""A model from outside -> ModelSpec: published configs, layers files, catalog names."""

from cost_models.readers.huggingface import FAMILIES
from cost_models.readers.sources import load_model, model_from_text, read_model

__all__ = ["FAMILIES", "load_model", "model_from_text", "read_model"]
