"""Any nn.Module: `package.module:factory` on the command line, or an object in Python."""

from __future__ import annotations

import copy
import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cost_models.errors import InvalidModel
from cost_models.readers.torch_module.quiet import ONE_AT_A_TIME
from cost_models.specs.model import Assumed, ModelSpec

if TYPE_CHECKING:
    from torch import nn

FACTORY: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
BUILD_LIMIT_S: Final = 120.0


def is_factory(text: str) -> bool:
    """Whether a text reads as `package.module:factory`."""
    return FACTORY.fullmatch(text) is not None


def read_factory(text: str, *, name: str = "") -> ModelSpec:
    """ModelSpec of what a factory builds; raises InvalidModel with the reason where it cannot be had."""
    if find_spec("torch") is None:
        raise InvalidModel(
            f"model {text[:200]} is a module's factory; pip install parallelism-planner[torch]"
        )
    module, _, attribute = text.partition(":")
    with _here_importable():
        try:
            found: Any = importlib.import_module(module)
            for part in attribute.split("."):
                found = getattr(found, part)
        except (Exception, SystemExit) as error:
            raise InvalidModel(
                f"model {text[:200]} cannot be imported ({_reason(error)}); give package.module:factory"
            ) from error
        return read_torch_module(found, name=name or attribute)


def read_torch_module(
    factory: Callable[[], Any] | nn.Module, example_batch: Any = None, name: str = ""
) -> ModelSpec:
    """ModelSpec of a module, or of what a factory returns: a module, or (module, example batch).

    The batch is a tensor, a tuple or a dict of tensors, samples first: whole numbers of shape (batch, positions)
    are tokens, four dimensions are images, anything else one position a sample. Without one, costs are estimated.
    """
    from torch import nn

    built, own = _taken_apart(factory if isinstance(factory, nn.Module) else _built(factory))
    example_batch = own if example_batch is None else example_batch
    if not isinstance(built, nn.Module):
        raise InvalidModel(
            f"the factory returned a {type(built).__name__}; return an nn.Module, or (nn.Module, example batch)"
        )
    with ONE_AT_A_TIME:
        return _read(built, example_batch, name or type(built).__name__)


def _taken_apart(found: Any) -> tuple[Any, Any]:
    """Module and example batch of what a factory returned: a pair, or `module` and `example_batch` by name."""
    from torch import nn

    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[0], nn.Module):
        return found
    if isinstance(found, Mapping) and "module" in found:
        return found["module"], found.get("example_batch")
    if not isinstance(found, nn.Module) and isinstance(getattr(found, "module", None), nn.Module):
        return found.module, getattr(found, "example_batch", None)
    return found, None


def _built(factory: Any) -> Any:
    """What the factory returns, without memory where it allows that."""
    import torch

    from cost_models.readers.torch_module.build import time_limit
    from cost_models.readers.torch_module.quiet import quietly

    if not callable(factory):
        raise InvalidModel(f"the factory is a {type(factory).__name__}; give a function without parameters")
    with quietly(), time_limit(BUILD_LIMIT_S, "the factory"):
        try:
            with torch.device("meta"):
                return factory()
        except InvalidModel:
            raise
        except (Exception, SystemExit):
            try:
                return factory()  # it asks its own weights for numbers: build it for real
            except (Exception, SystemExit) as error:
                raise InvalidModel(f"the factory failed: {_reason(error)}; correct it") from error


def _read(module: nn.Module, example: Any, name: str) -> ModelSpec:
    from cost_models.readers.torch_module.assemble import Assembly, Facts
    from cost_models.readers.torch_module.costs import Traced
    from cost_models.readers.torch_module.example import trace_batch
    from cost_models.readers.torch_module.experts import find_experts
    from cost_models.readers.torch_module.structure import take_apart
    from cost_models.readers.torch_module.trace import Prepared

    module = _without_values(module)
    structure = take_apart(module)
    experts = {id(layer.module): find_experts(layer.module, None) for layer in structure.layers}
    table, head = _ends(module, structure.layers)
    prepared = Prepared(module, structure, experts, table, head)
    assumed: tuple[Assumed, ...] = ()
    if example is None:
        found = Traced(reason="no example batch was given")
    else:
        found, note = trace_batch(prepared, example)
        if note:
            assumed = (Assumed(key="example batch", value=note, changes_parameters=False),)
    facts = Facts(
        name=name,
        family=type(module).__name__,
        reader="torch_module",
        hidden=int(getattr(table, "embedding_dim", 0)),
        assumed=assumed,
    )
    return Assembly(prepared, found, (), facts).model()


def _without_values(module: nn.Module) -> nn.Module:
    """A copy on the meta device; what several modules share stays shared, and the given module stays as it is."""
    from torch import nn

    memo: dict[int, Any] = {
        id(parameter): nn.Parameter(parameter.detach().to("meta"), parameter.requires_grad)
        for parameter in module.parameters()
    }
    memo |= {id(buffer): buffer.detach().to("meta") for buffer in module.buffers()}
    try:
        return copy.deepcopy(module, memo)
    except Exception as error:
        raise InvalidModel(f"the module cannot be copied ({_reason(error)}); give its factory") from error


def _ends(module: nn.Module, layers: Sequence[Any]) -> tuple[nn.Module | None, nn.Module | None]:
    """The largest table outside the layers, and a linear back to as many rows."""
    from torch import nn

    inside = {id(part) for layer in layers for part in layer.module.modules()}
    outside = [part for part in module.modules() if id(part) not in inside]
    tables = [part for part in outside if isinstance(part, nn.Embedding)]
    table = max(tables, key=lambda part: part.num_embeddings, default=None)
    heads = [
        part
        for part in outside
        if isinstance(part, nn.Linear) and table is not None and part.out_features == table.num_embeddings
    ]
    return table, heads[-1] if heads else None


@contextmanager
def _here_importable() -> Iterator[None]:
    """Modules of the working directory can be imported, as under `python -m`."""
    here = str(Path.cwd())
    if here in sys.path or "" in sys.path:
        yield
        return
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)


def _reason(error: BaseException) -> str:
    from cost_models.readers.torch_module.quiet import one_line

    return f"{type(error).__name__}: {one_line(error)}"[:250]
