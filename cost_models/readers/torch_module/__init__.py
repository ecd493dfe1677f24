"""Any architecture that a library can build: its module, without memory, is counted and run.

Needs the extra `parallelism-planner[transformers]` (or torch, for modules of one's own); importing this package
loads neither.
"""

from cost_models.readers.torch_module.read import (
    can_build,
    is_factory,
    read_factory,
    read_torch_module,
    read_transformers,
)

__all__ = ["can_build", "is_factory", "read_factory", "read_torch_module", "read_transformers"]
