"""A model from outside -> ModelSpec: published configs, layers files, catalog names, modules."""

from cost_models.readers.huggingface import FAMILIES
from cost_models.readers.sources import Reader, load_model, model_from_text, read_model
from cost_models.readers.torch_module import is_factory, read_factory, read_torch_module

__all__ = [
    "FAMILIES",
    "Reader",
    "is_factory",
    "load_model",
    "model_from_text",
    "read_factory",
    "read_model",
    "read_torch_module",
]
