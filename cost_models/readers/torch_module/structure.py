"""What a built module is made of: stacks of layers, kinds of layers by structure, and who owns which parameter.

Parameters are told apart by identity, so that one object counts once however often it is used; buffers are none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cost_models.errors import InvalidModel
from cost_models.specs.model import MAX_LAYERS

if TYPE_CHECKING:
    from torch import nn

Signature = tuple[object, ...]

POSITION_WORDS: Final = ("idx", "index", "layer_id", "block_id", "depth", "drop", "layer_num", "seed")
"""Attributes that number a layer, or its dropout: they differ from layer to layer and cost nothing."""


@dataclass(frozen=True)
class LayerModule:
    """One layer of a stack: where it stands, its module and its kind."""

    path: str
    module: nn.Module
    kind: str


@dataclass(frozen=True)
class StackModule:
    """An outermost list of layers."""

    path: str
    layers: tuple[LayerModule, ...]


@dataclass(frozen=True)
class OutsideParameter:
    """A parameter of no layer: its first name, and whether any of its names stands in the embedding layer."""

    name: str
    parameter: nn.Parameter
    embedding: bool


@dataclass(frozen=True)
class Structure:
    """A module taken apart. `outside` are the parameters of no stack; `total` counts every object once."""

    stacks: tuple[StackModule, ...]
    outside: tuple[OutsideParameter, ...]
    total: int
    owners: Mapping[int, int] = field(default_factory=dict)
    """How many layers (the outside as one more) hold the parameter of this identity."""

    @property
    def layers(self) -> tuple[LayerModule, ...]:
        """Layers of all stacks in order."""
        return tuple(layer for stack in self.stacks for layer in stack.layers)


def take_apart(model: nn.Module) -> Structure:
    """Stacks, kinds and owners of a module; raises InvalidModel where there is nothing to count."""
    every = dict(model.named_parameters(remove_duplicate=True))
    if not every:
        raise InvalidModel("the module has no parameters; give one that has")
    lists = tuple(_stacks(model))
    if sum(len(found) for _, found in lists) > MAX_LAYERS:
        raise InvalidModel(f"the module has more than {MAX_LAYERS:,} layers; give a smaller one")
    names = _KindNames()
    stacks = tuple(
        StackModule(
            path,
            tuple(
                LayerModule(f"{path}.{name}" if path else name, layer, names.of(path, layer))
                for name, layer in found
            ),
        )
        for path, found in lists
    )
    inside = {
        id(parameter) for stack in stacks for layer in stack.layers for parameter in layer.module.parameters()
    }
    outside = _outside(model, inside)
    seen: dict[int, nn.Module] = {}
    for stack in stacks:
        for layer in stack.layers:
            seen.setdefault(id(layer.module), layer.module)
    owners = Counter(id(parameter) for module in seen.values() for parameter in module.parameters())
    owners.update(id(parameter) for parameter in _apart(model, set(seen)))
    return Structure(stacks, outside, sum(p.numel() for p in every.values()), owners)


def _outside(model: nn.Module, inside: set[int]) -> tuple[OutsideParameter, ...]:
    """Parameters of no layer, every object once; a head tied to the table counts with the table."""
    found: dict[int, OutsideParameter] = {}
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) in inside:
                continue
            full = f"{path}.{name}" if path else name
            known = found.get(id(parameter))
            embedding = is_embedding(full, module) or (known is not None and known.embedding)
            found[id(parameter)] = OutsideParameter(known.name if known else full, parameter, embedding)
    return tuple(found.values())


def unique_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters of a module by name, every object once."""
    return dict(module.named_parameters(remove_duplicate=True))


def _apart(model: nn.Module, layers: set[int]) -> Iterator[nn.Parameter]:
    """Parameter objects held by modules outside all layers, once each."""
    seen: set[int] = set()
    todo = [model]
    while todo:
        module = todo.pop()
        if id(module) in layers:
            continue
        for parameter in module.parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield parameter
        todo.extend(module.children())


def _stacks(model: nn.Module) -> Iterator[tuple[str, list[tuple[str, nn.Module]]]]:
    """Outermost module lists that hold parameters of their own; without any, the largest sequence of modules."""
    from torch import nn

    seen: set[int] = set()
    found = False
    for path, lists in _outermost(model, "", nn.ModuleList):
        layers = [(name, each) for name, each in lists.named_children_all() if _has_parameters(each)]
        new = {id(each) for _, each in layers} - seen
        if not new:
            continue
        seen |= new
        found = True
        yield path, layers
    if not found:
        yield _sequence(model)


def _outermost(module: nn.Module, path: str, kind: type) -> Iterator[tuple[str, _List]]:
    for name, child in module.named_children():
        inner = f"{path}.{name}" if path else name
        if isinstance(child, kind) and "expert" not in name.lower():
            yield inner, _List(child)
        else:
            yield from _outermost(child, inner, kind)


class _List:
    """A module list; unlike named_children it tells a layer that stands in it twice, twice."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def named_children_all(self) -> list[tuple[str, nn.Module]]:
        """Name and module of every entry."""
        return [(name, each) for name, each in self._module._modules.items() if each is not None]


def _sequence(model: nn.Module) -> tuple[str, list[tuple[str, nn.Module]]]:
    """The outermost sequential with most layers, else the children that hold parameters, else the module itself."""
    from torch import nn

    sequences = [(path, found.named_children_all()) for path, found in _outermost(model, "", nn.Sequential)]
    if isinstance(model, nn.Sequential):
        sequences = [("", _List(model).named_children_all())]
    filled = [(path, [pair for pair in found if _has_parameters(pair[1])]) for path, found in sequences]
    if filled and max(len(found) for _, found in filled) > 1:
        return max(filled, key=lambda each: len(each[1]))
    children = [(name, child) for name, child in model.named_children() if _has_parameters(child)]
    own = any(True for _ in model.parameters(recurse=False))
    return ("", children if children and not own else [("", model)])


def _has_parameters(module: nn.Module) -> bool:
    return any(True for _ in module.parameters())


class _KindNames:
    """Names for kinds: the class, numbered where layers of one class differ."""

    def __init__(self) -> None:
        self._known: dict[Signature, str] = {}
        self._by_class: Counter[str] = Counter()
        self._of_module: dict[tuple[str, int], str] = {}

    def of(self, stack: str, module: nn.Module) -> str:
        """The kind of a layer; layers of one stack that are built alike have one."""
        known = self._of_module.get((stack, id(module)))
        if known:
            return known
        signature = (stack, *layer_signature(module))
        if signature not in self._known:
            name = type(module).__name__
            self._by_class[name] += 1
            number = self._by_class[name]
            self._known[signature] = name if number == 1 else f"{name}_{number}"
        self._of_module[stack, id(module)] = self._known[signature]
        return self._known[signature]


def layer_signature(module: nn.Module) -> Signature:
    """Everything that makes layers differ: classes, parameter shapes, plain attributes such as a window."""
    shapes = tuple((name, tuple(p.shape)) for name, p in module.named_parameters(remove_duplicate=False))
    parts: list[tuple[str, str, tuple[tuple[str, object], ...]]] = []
    for name, part in module.named_modules():
        scalars = tuple(
            (key, value) for key, value in sorted(vars(part).items()) if _tells(key) and _is_plain(value)
        )
        parts.append((name, type(part).__name__, scalars))
    return (type(module).__name__, shapes, tuple(parts))


def _tells(key: str) -> bool:
    """Whether an attribute may tell kinds apart."""
    return not key.startswith("_") and not any(word in key for word in POSITION_WORDS)


def _is_plain(value: object) -> bool:
    """Whole numbers, words and tuples of whole numbers; fractions scale results and cost nothing."""
    if isinstance(value, tuple):
        return all(isinstance(each, int) for each in value)
    return isinstance(value, int | str | None)


def is_embedding(name: str, owner: nn.Module) -> bool:
    """Whether a parameter outside the layers belongs to the embedding layer: by name, or by its module."""
    from torch import nn

    return "embed" in name.lower() or isinstance(owner, nn.Embedding)


def attribute(module: nn.Module, names: Sequence[str]) -> object:
    """The first of these attributes that the module has with a value, else None."""
    for name in names:
        value = vars(module).get(name)
        if value is not None:
            return value
    return None
