"""Layers files: any model in plain data, a whole ModelSpec or a short form built from the shared blocks."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import Field, ValidationError, model_validator

from cost_models.errors import InvalidModel
from cost_models.operators import Embedding, Traced
from cost_models.operators.base import Operator
from cost_models.operators.embedding import EMBEDDING_TIE
from cost_models.readers.blocks.attention import AttentionShape, LatentAttentionShape, attention_sublayer
from cost_models.readers.blocks.feed_forward import MlpShape, MoeShape, feed_forward_sublayer
from cost_models.readers.blocks.layers import layer_kind
from cost_models.readers.blocks.mamba import MambaShape, mamba_sublayer
from cost_models.readers.blocks.stream import MAX_SIZE, Builder, Size, Stream, Width, chain, head
from cost_models.specs.base import Frozen
from cost_models.specs.model import Layer, LayerKind, ModelSpec, Role

_Spec = TypeVar("_Spec", bound=Frozen)

VERSION = 1
"""The short form this version reads."""
MAX_ELEMENTS: Final = 10**15
"""Elements of one traced layer; far above any model's."""
MIN_INPUTS: Final = {"indexer": 3}
"""Tensors that operators of a family read, where it is more than one."""


class BlockEntry(Frozen):
    """`count` equal blocks: at most one token mixer, then at most one feed-forward.

    Entries that name the same `kind` must be written alike; later ones may give kind and count only. Entries
    of one `shares` group hold their weights once, however many layers use them.
    """

    kind: Annotated[str, Field(min_length=1, max_length=64)]
    count: Annotated[int, Field(ge=1, le=100_000, strict=True)] = 1
    attention: AttentionShape | None = None
    latent_attention: LatentAttentionShape | None = None
    mamba: MambaShape | None = None
    mlp: MlpShape | None = None
    moe: MoeShape | None = None
    shares: str = ""

    @property
    def is_reference(self) -> bool:
        """Whether the entry only names a kind described before."""
        return not any((self.attention, self.latent_attention, self.mamba, self.mlp, self.moe))

    @model_validator(mode="after")
    def _one_of_each(self) -> "BlockEntry":
        mixers = [each for each in (self.attention, self.latent_attention, self.mamba) if each]
        if len(mixers) > 1 or (self.mlp and self.moe):
            raise ValueError(
                "a block has at most one of attention, latent_attention, mamba and one of mlp, moe"
            )
        if self.attention and self.attention.heads % self.attention.key_heads:
            raise ValueError(
                f"heads {self.attention.heads} is not a multiple of kv_heads {self.attention.key_heads}; "
                "use a divisor of heads"
            )
        if self.moe and self.moe.top_k > self.moe.experts:
            raise ValueError(f"top_k {self.moe.top_k} is more than the {self.moe.experts} experts; lower it")
        if self.mamba and self.mamba.heads % self.mamba.groups:
            raise ValueError(
                f"mamba heads {self.mamba.heads} is not a multiple of groups {self.mamba.groups}; "
                "use a divisor of heads"
            )
        return self


class LayersFile(Frozen):
    """The short form: sizes of the stream and its ends, and the blocks in order."""

    layers_file: Literal[1]
    name: str = ""
    hidden_size: Size
    vocab_size: Size
    layers: Annotated[tuple[BlockEntry, ...], Field(min_length=1)]
    norm: Literal["rms", "layer"] = "rms"
    norm_placement: Literal["pre", "post", "sandwich"] = "pre"
    dropout: bool = False
    tied_embeddings: bool = False
    positions: Width = 0
    """Rows of a learned position table, 0 for none."""
    max_seq_len: Width = 0
    semantics: dict[str, str | int | float | bool | None] = {}


def is_layers_file(source: Mapping[str, object]) -> bool:
    """Whether plain data is a layers file rather than a config."""
    return "layers_file" in source or "kinds" in source or isinstance(source.get("layers"), list | tuple)


def read_layers_file(source: Mapping[str, object], *, name: str = "") -> ModelSpec:
    """ModelSpec of either form; what is wrong is named with the place."""
    if "kinds" in source:
        model = _checked(ModelSpec, {key: value for key, value in source.items() if key != "layers_file"})
        for kind in model.kinds.values():
            for operator in kind.operators:
                _check_sizes(kind.name, operator)
        return model
    if "layers_file" not in source:
        raise InvalidModel(
            f"the layers file states no version; add layers_file: {VERSION}", pointer="/layers_file"
        )
    return _build(_checked(LayersFile, source), name)


def _checked(kind: type[_Spec], source: Mapping[str, Any]) -> _Spec:
    try:
        return kind.model_validate(dict(source))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = "/".join(str(part) for part in first["loc"])
        more = f" ({error.error_count() - 1} more)" if error.error_count() > 1 else ""
        sentence = first["msg"].removeprefix("Value error, ")
        raise InvalidModel(
            f"layers file, {place or 'as a whole'}: {sentence}{more}; correct that key (docs/models.md)",
            pointer=f"/{place}",
        ) from error


def _check_sizes(kind: str, operator: Operator) -> None:
    """Sizes are at least 1 where they must be stated, at least 0 elsewhere, never enormous; inputs are named."""
    high = MAX_ELEMENTS if isinstance(operator, Traced) else MAX_SIZE
    for key, value, low in _sizes(operator):
        if not low <= value <= high:
            raise InvalidModel(
                f"layers file, kind {kind}, operator {operator.name}: {key} is {value}; "
                f"give a whole number between {low} and {high}",
                pointer=f"/kinds/{kind}/operators/{operator.name}/{key}",
            )
    needed = MIN_INPUTS.get(getattr(operator, "family", ""), 1)
    if len(operator.inputs) < needed:
        raise InvalidModel(
            f"layers file, kind {kind}, operator {operator.name}: {len(operator.inputs)} inputs; "
            f"name at least {needed}",
            pointer=f"/kinds/{kind}/operators/{operator.name}/inputs",
        )


def _sizes(described: Frozen, prefix: str = "") -> Iterator[tuple[str, int, int]]:
    """Whole numbers of an operator and of its parts: key, value, and the least that it may be."""
    for key, about in type(described).model_fields.items():
        value = getattr(described, key)
        if isinstance(value, int):
            yield f"{prefix}{key}", value, 1 if about.is_required() else 0
        for index, part in enumerate(value if isinstance(value, tuple) else ()):
            if isinstance(part, Frozen):
                yield from _sizes(part, f"{prefix}{key}/{index}/")


def _build(file: LayersFile, name: str) -> ModelSpec:
    stream = Stream(file.hidden_size, file.norm, file.norm_placement, file.dropout)
    entries = _described(file)
    tie = EMBEDDING_TIE if file.tied_embeddings else ""
    table = Embedding(
        name="embedding",
        vocab_size=file.vocab_size,
        width=file.hidden_size,
        positions=file.positions,
        tie=tie,
        dropout=file.dropout,
    )
    kinds: dict[str, LayerKind] = {"embedding": layer_kind("embedding", (table,), file.hidden_size)}
    for kind, entry in entries.items():
        kinds[kind] = layer_kind(kind, _operators(entry, stream), file.hidden_size)
    last = head(stream, file.vocab_size, tie)
    kinds["head"] = layer_kind("head", last, file.hidden_size, cut_after=False)
    blocks = tuple(Layer(kind=entry.kind, count=entry.count, shares=entry.shares) for entry in file.layers)
    attention = next((e.attention or e.latent_attention for e in entries.values() if _attends(e)), None)
    moe = next((entry.moe for entry in entries.values() if entry.moe), None)
    return ModelSpec(
        name=file.name or name or "model",
        family="layers",
        layers=(
            Layer(kind="embedding", role=Role.EMBEDDING),
            *blocks,
            Layer(kind="head", role=Role.HEAD),
        ),
        kinds=kinds,
        vocab_size=file.vocab_size,
        hidden_size=file.hidden_size,
        num_attention_heads=attention.heads if attention else 0,
        num_kv_heads=_key_heads(attention),
        num_experts=moe.experts if moe else 0,
        num_experts_per_token=moe.top_k if moe else 0,
        max_seq_len=file.max_seq_len or file.positions,
        tied_embeddings=file.tied_embeddings,
        semantics={"norm": file.norm, **file.semantics},
        reader="layers",
    )


def _described(file: LayersFile) -> dict[str, BlockEntry]:
    """The describing entry of each kind, in order of first use."""
    found: dict[str, BlockEntry] = {}
    for index, entry in enumerate(file.layers):
        place = f"/layers/{index}"
        if entry.kind in {"embedding", "head"}:
            raise InvalidModel(
                f"layers entry {index} is named {entry.kind}, which the reader adds itself; rename it",
                pointer=f"{place}/kind",
            )
        same = {"count": 1, "shares": ""}
        if entry.kind not in found:
            if entry.is_reference:
                raise InvalidModel(
                    f"layers entry {index} ({entry.kind}) has neither a token mixer nor a feed-forward; "
                    "add attention, latent_attention, mamba, mlp or moe",
                    pointer=place,
                )
            found[entry.kind] = entry
        elif not entry.is_reference and entry.model_copy(update=same) != found[entry.kind].model_copy(
            update=same
        ):
            raise InvalidModel(
                f"layers entry {index} describes kind {entry.kind} again, differently; give it another name",
                pointer=f"{place}/kind",
            )
    return found


def _operators(entry: BlockEntry, stream: Stream) -> tuple[Operator, ...]:
    builders: list[Builder] = []
    attention = entry.attention or entry.latent_attention
    if attention:
        builders.append(attention_sublayer(stream, attention))
    if entry.mamba:
        builders.append(mamba_sublayer(stream, entry.mamba))
    feed_forward = entry.mlp or entry.moe
    if feed_forward:
        builders.append(feed_forward_sublayer(stream, feed_forward))
    return chain(*builders)


def _attends(entry: BlockEntry) -> bool:
    return bool(entry.attention or entry.latent_attention)


def _key_heads(attention: AttentionShape | LatentAttentionShape | None) -> int:
    if attention is None:
        return 0
    return attention.heads if isinstance(attention, LatentAttentionShape) else attention.key_heads
