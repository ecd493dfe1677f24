"""Which tensors of safetensors files each parameter of a model is."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from cost_models.errors import BadInput
from cost_models.operators import Linear
from cost_models.specs.model import ModelSpec, Role
from planner.executor.weights.cuts import Source
from planner.executor.weights.families import BARE, FAMILIES, IGNORED, PREDICTION, PREDICTION_COPIES
from planner.executor.weights.layouts import ALONE, EXPERT, Names, Spelling

HEAD = "logits"
TABLES = ("embedding", "mtp_embedding")


@dataclass(frozen=True, slots=True)
class Naming:
    """The names of one model's parameters, as they are in files with these keys (none: as they are written)."""

    model: ModelSpec
    names: Names
    keys: Collection[str] = ()

    def source(self, name: str, shape: tuple[int, ...]) -> Source:
        """The source of a parameter or buffer of this global name and shape; a tied copy's is its table's.

        Raises BadInput where the family has no name for it.
        """
        _, index, operator, parameter = name.split(".")
        kind, role = _layers(self.model)[int(index)]
        if operator in TABLES:
            operator, role = TABLES[0], Role.EMBEDDING
        elif operator == HEAD:
            role = Role.HEAD
            if parameter == "weight" and self.model.tied_embeddings:
                operator, parameter, role = TABLES[0], "table", Role.EMBEDDING
        inside = role in (Role.BLOCK, Role.MTP)
        prefix = self.names.block.format(self._block(int(index))) if inside else ""
        table = self.names.inside if inside else self.names.outside
        if inside:
            table = {**table, **self._variant(kind), **(PREDICTION if role is Role.MTP else {})}
        key, suffix = _key(operator, parameter, table)
        first = (table[key], self.names.layouts.get(key, "plain"))
        spelled, layout = self._spelling(prefix, (first, *self.names.also.get(key, ())))
        bare = key in BARE or layout in ("experts", "experts_in_turn")
        end = f".{suffix}" if not bare else "_bias" if suffix == "bias" else ""
        full = self._present(prefix + spelled) + end
        if suffix == "bias" and layout == "transposed":
            return Source(full, shape)
        if suffix == "bias" and layout == "concat_transposed":
            layout = "concat"
        if layout in ALONE:
            return Source(full, shape, layout)
        sizes, index_of = _parts(self.model, kind, operator, key)
        heads = self.model.num_kv_heads if layout == "by_key_head" else self.model.num_attention_heads
        return Source(full, shape, layout, index_of, sizes, heads)

    def _variant(self, kind: str) -> Mapping[str, str]:
        """Names that blocks of this kind have otherwise."""
        operators = {operator.name for operator in self.model.kinds[kind].operators}
        parallel = self.model.semantics.get("parallel_residual") is True
        found: dict[str, str] = {}
        for variant in self.names.variants:
            if variant.applies(operators, parallel=parallel):
                found |= variant.inside
        return found

    def _block(self, layer: int) -> int:
        """The number of a layer among blocks; prediction layers go on after them."""
        return layer - next(i for i, (_, role) in enumerate(_layers(self.model)) if role is Role.BLOCK)

    def _spelling(self, prefix: str, spellings: tuple[Spelling, ...]) -> Spelling:
        """The first spelling that the files have; the first one where they have none."""
        for spelled, layout in spellings if len(spellings) > 1 else ():
            start = self._present(prefix + spelled.replace(EXPERT, "0"))
            if any(f"{start}{end}" in self.keys for end in ("", ".weight")):
                return spelled, layout
        return spellings[0]

    def _present(self, key: str) -> str:
        """The key as files of the bare model have it, where these are such."""
        base = self.names.base
        return key.removeprefix(base) if self._is_bare else key

    @property
    def _is_bare(self) -> bool:
        return bool(self.keys) and not any(key.startswith(self.names.base) for key in self.keys)

    def is_ignored(self, key: str) -> bool:
        """Whether a tensor of the files is none of the model's parameters, and need not be."""
        if self.model.tied_embeddings and key in (f"{each}.weight" for each in ("lm_head", "embed_out")):
            return True
        return any(re.search(pattern, key) for pattern in IGNORED)

    def is_prediction(self, key: str) -> bool:
        """Whether a tensor of the files is a multi-token-prediction layer's."""
        found = re.match(re.escape(self._present(self.names.block)).replace(r"\{\}", r"(\d+)"), key)
        return (
            found is not None
            and int(found[1]) >= self.model.num_blocks
            and bool(self.model.expanded(Role.MTP))
        )

    def is_prediction_copy(self, key: str) -> bool:
        """Whether it is what a prediction layer's files hold of the model's own table or head."""
        return self.is_prediction(key) and any(re.search(pattern, key) for pattern in PREDICTION_COPIES)


def naming_of(model: ModelSpec, keys: Collection[str] = ()) -> Naming:
    """The names of a model's parameters in files with these keys; raises BadInput for a family without known names."""
    family = FAMILIES.get(model.family)
    if family is None:
        raise BadInput(
            f"weights of {model.family} have no known names in safetensors files; use one of "
            f"{', '.join(sorted(FAMILIES))}"
        )
    return Naming(model, family, keys)


def is_adapter(name: str) -> bool:
    """Whether a parameter is an adapter's, which stands in files of its own (planner.executor.adapters)."""
    return ".adapters." in name


def _layers(model: ModelSpec) -> list[tuple[str, Role]]:
    return [(layer.kind, layer.role) for layer in model.layers for _ in range(layer.count)]


def _key(operator: str, parameter: str, table: Mapping[str, str]) -> tuple[str, str]:
    """The table's entry for a parameter, and whether it is the weight or the bias."""
    part, suffix = (
        (parameter.removesuffix("_bias"), "bias") if parameter.endswith("bias") else (parameter, "weight")
    )
    for key in (f"{operator}.{parameter}", f"{operator}.{part}", operator):
        if key in table:
            return key, suffix
    raise BadInput(f"parameter {operator}.{parameter} has no known name in the family's weights")


def _parts(model: ModelSpec, kind: str, operator: str, key: str) -> tuple[tuple[int, ...], int]:
    """Features of all parts of a fused linear, and which one the key is."""
    found = next((op for op in model.kinds[kind].operators if op.name == operator), None)
    part = key.partition(".")[2]
    if isinstance(found, Linear) and len(found.parts) > 1:
        return tuple(each.features for each in found.parts), [each.name for each in found.parts].index(part)
    if found is not None and found.family == "grouped_linear" and part in ("gate", "up"):
        return (found.out_features // 2,) * 2, ("gate", "up").index(part)
    return (), 0
