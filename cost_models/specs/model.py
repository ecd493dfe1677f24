"""ModelSpec: ordered layers of named kinds, each kind a list of operators.

Irregular models are the rule: dense before MoE, window and full attention mixed, several stacks, tied tables.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from cost_models.operators import AnyOperator
from cost_models.specs.base import Frozen

MAX_LAYERS = 100_000
"""Far above any model; a larger number is a typing error and would only fill the memory."""


class Role(StrEnum):
    """Where a layer may stand in a pipeline."""

    EMBEDDING = "embedding"  # always on the first stage
    BLOCK = "block"  # counted by `stages=...`; stages are cut between blocks
    CONNECTOR = "connector"  # from a vision tower to the decoder: stands with the embedding, counts apart
    MTP = "mtp"  # multi-token prediction: on the last stage, or counted by `stages`; only when trained
    HEAD = "head"  # final norm, head and loss: always on the last stage


class RecomputeScope(Frozen):
    """A named group of operators whose saved tensors can be dropped and recomputed (`core_attn`, `mlp`, `moe`).

    `gives_up` names the outputs that are dropped too, although operators outside the scope read them.
    """

    name: str
    operators: tuple[str, ...]
    gives_up: tuple[str, ...] = ()


class LayerKind(Frozen):
    """Layers of one kind cost the same: the operators, what may be recomputed, the tensor handed to the next layer.

    `boundary_width` is the number of elements per token of that tensor (for vision: channels; `boundary_downsample`
    is the cumulative stride, 0 for token models). `cut_after` says whether a stage may end here.
    """

    name: str
    operators: tuple[AnyOperator, ...]
    scopes: tuple[RecomputeScope, ...] = ()
    boundary_width: int = 0
    boundary_downsample: int = 0
    cut_after: bool = True


class Layer(Frozen):
    """One layer in execution order."""

    kind: str
    role: Role = Role.BLOCK
    stack: str = "decoder"
    count: Annotated[int, Field(ge=1, le=MAX_LAYERS)] = 1
    """This many equal layers in a row."""
    shares: str = ""
    """Name of a weight-sharing group: layers of one group store their weights once (ALBERT)."""


class Stack(Frozen):
    """A stack of layers with its own sequence (decoder, encoder, vision tower)."""

    name: str
    length: str = "seq_len"
    """Which job value gives its positions: seq_len, decoder_seq_len, or image_size."""
    reads: tuple[str, ...] = ()
    """Stacks whose final output its layers read (cross-attention), so that the tensor travels with the pipeline."""
    patch_size: Annotated[int, Field(ge=0, le=65_536)] = 0
    """Above 0: positions are squares of the image of so many pixels a side, whatever `length` says."""
    extra_positions: Annotated[int, Field(ge=0, le=65_536)] = 0
    """Positions beside the patches: class token, distillation token, registers."""
    positions: Annotated[int, Field(ge=0, le=100_000_000)] = 0
    """Above 0: every sequence has so many positions in this stack, whatever `length` says (one image)."""

    def patches(self, image_size: int) -> int:
        """Positions of an image of this side in pixels, or the fixed ones; 0 where the stack has neither."""
        if self.positions:
            return self.positions
        if not self.patch_size:
            return 0
        return (image_size // self.patch_size) ** 2 + self.extra_positions


class Assumed(Frozen):
    """A key that the config did not state, the value assumed, and whether it changes the parameter count."""

    key: str
    value: str
    changes_parameters: bool


class ModelSpec(Frozen):
    """A model that can be priced and built."""

    name: str
    family: str
    layers: tuple[Layer, ...]
    kinds: dict[str, LayerKind]
    stacks: tuple[Stack, ...] = (Stack(name="decoder"),)
    vocab_size: int = 0
    hidden_size: int
    num_attention_heads: int = 0
    num_kv_heads: int = 0
    num_experts: int = 0
    num_experts_per_token: int = 0
    max_seq_len: int = 0
    tied_embeddings: bool = False
    image_size: int = 0
    """Input side in pixels for vision models, else 0."""
    semantics: dict[str, str | int | float | bool | None] = {}
    """What is needed to build the model and costs nothing: rope, norm, activation, bias, router scoring."""
    assumed: tuple[Assumed, ...] = ()
    reader: str = "layers"
    towers_with_embedding: bool = False
    """Whether vision towers stand whole with the embedding, on the first stage, and stages count the rest alone."""
    mtp_in_stages: bool = False
    """Whether stages count the prediction layers, all of them as one more block behind the model's own, so that they
    may stand before the loss's stage; the head of each stays with the loss."""

    @model_validator(mode="after")
    def _references_exist(self) -> "ModelSpec":
        stacks = {stack.name for stack in self.stacks}
        for layer in self.layers:
            if layer.kind not in self.kinds:
                raise ValueError(f"layer kind {layer.kind!r} is not defined; define it under kinds")
            if layer.stack not in stacks:
                raise ValueError(f"stack {layer.stack!r} is not defined; define it under stacks")
        total = sum(layer.count for layer in self.layers)
        if total > MAX_LAYERS:
            raise ValueError(f"the model has {total:,} layers; give at most {MAX_LAYERS:,}")
        if not any(layer.role is Role.BLOCK for layer in self.layers):
            raise ValueError("a model needs at least one layer of role block")
        return self

    @property
    def is_vision(self) -> bool:
        """Whether a batch is counted in samples rather than sequences."""
        return self.image_size > 0

    @property
    def is_moe(self) -> bool:
        """Whether any layer routes tokens to experts."""
        return self.num_experts > 0

    def expanded(self, role: Role) -> tuple[Layer, ...]:
        """Layers of one role in order, one entry a layer."""
        return tuple(layer for layer in self.layers if layer.role is role for _ in range(layer.count))

    @property
    def num_blocks(self) -> int:
        """Number of layers that pipeline stages are made of."""
        return self.num_layers + (self.mtp_in_stages and self.num_predictions > 0)

    @property
    def num_layers(self) -> int:
        """Number of the model's own blocks that stages are cut from, without prediction layers."""
        return sum(layer.count for layer in self.stage_layers)

    @property
    def stage_layers(self) -> tuple[Layer, ...]:
        """Blocks that stages are cut from, in order."""
        apart = self.whole_stacks
        return tuple(layer for layer in self.layers if layer.role is Role.BLOCK and layer.stack not in apart)

    @property
    def whole_stacks(self) -> frozenset[str]:
        """Stacks that no stage divides."""
        return self.towers if self.towers_with_embedding else frozenset()

    @property
    def towers(self) -> frozenset[str]:
        """Stacks before the last one of a model of tokens, whose output its embedding takes in (vision towers)."""
        if self.is_vision or any(stack.reads for stack in self.stacks):
            return frozenset()
        return frozenset(stack.name for stack in self.stacks[:-1])

    @property
    def num_predictions(self) -> int:
        """Number of multi-token-prediction layers, trained or not."""
        return sum(layer.count for layer in self.layers if layer.role is Role.MTP)

    @property
    def recompute_scopes(self) -> tuple[str, ...]:
        """Names of the recompute scopes that some layer has, in alphabetical order."""
        return tuple(sorted({scope.name for kind in self.kinds.values() for scope in kind.scopes}))
