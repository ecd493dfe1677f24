"""Which parts of a chunk are gathered and reduced together."""

from collections.abc import Iterator

from torch import nn


def units_of(chunk: nn.Module) -> list[list[nn.Module]]:
    """Parts of a chunk that are sharded as one, in order of use; what belongs to none is left to the whole.

    Each layer is a unit, so that the token table and the output head, by far the largest of many models, are apart.
    Layers that share a parameter are one unit: it must be gathered for all of them.
    """
    units: list[list[nn.Module]] = []
    for layer in _layers(chunk):
        held = {id(parameter) for parameter in layer.parameters()}
        if not held:
            continue
        sharing = [unit for unit in units if any(id(p) in held for part in unit for p in part.parameters())]
        if not sharing:
            units.append([layer])
            continue
        sharing[0].extend(part for unit in sharing[1:] for part in unit)
        sharing[0].append(layer)
        units = [unit for unit in units if unit not in sharing[1:]]
    return units


def _layers(chunk: nn.Module) -> Iterator[nn.Module]:
    """Entries of the outermost lists and dictionaries of modules; the direct parts of a chunk that has none."""
    containers = [part for part in chunk.children() if isinstance(part, nn.ModuleList | nn.ModuleDict)]
    for part in chunk.children():
        if part in containers:
            yield from part.children()
        elif containers:
            inner = any(isinstance(each, nn.ModuleList | nn.ModuleDict) for each in part.modules())
            yield from _layers(part) if inner else [part]
        elif any(isinstance(each, nn.ModuleList | nn.ModuleDict) for each in part.modules()):
            yield from _layers(part)
        else:
            yield part
