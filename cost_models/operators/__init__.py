"""Operators: what each family counts, one family a file. `AnyOperator` is the tagged union that files hold."""

from typing import Annotated

from pydantic import Field

from cost_models.operators.adapter import AdapterBank
from cost_models.operators.adaptive import AdaptiveEmbedding, AdaptiveSoftmax, Cluster
from cost_models.operators.attention import Attention
from cost_models.operators.convolution import BatchNorm, Conv2d, Pool
from cost_models.operators.disentangled import DisentangledBias
from cost_models.operators.elementwise import Activation, Residual, Rope, Scale
from cost_models.operators.embedding import Embedding, IdleWeights, PositionTable
from cost_models.operators.linear import Linear
from cost_models.operators.linear_attention import LinearAttention
from cost_models.operators.lora import LoraAdapter
from cost_models.operators.loss import ClassLoss, CrossEntropy, LmHead
from cost_models.operators.moe import Combine, Dispatch, GroupedLinear, Router
from cost_models.operators.norm import Norm
from cost_models.operators.sparse_attention import Indexer
from cost_models.operators.state_space import CausalConv, SelectiveScan, StateSpaceScan
from cost_models.operators.traced import Traced

__all__ = [
    "Activation",
    "AdapterBank",
    "AdaptiveEmbedding",
    "AdaptiveSoftmax",
    "AnyOperator",
    "Attention",
    "BatchNorm",
    "CausalConv",
    "ClassLoss",
    "Cluster",
    "Combine",
    "Conv2d",
    "CrossEntropy",
    "DisentangledBias",
    "Dispatch",
    "Embedding",
    "GroupedLinear",
    "IdleWeights",
    "Indexer",
    "Linear",
    "LinearAttention",
    "LmHead",
    "LoraAdapter",
    "Norm",
    "Pool",
    "PositionTable",
    "Residual",
    "Rope",
    "Router",
    "Scale",
    "SelectiveScan",
    "StateSpaceScan",
    "Traced",
]

AnyOperator = Annotated[
    Activation
    | AdapterBank
    | AdaptiveEmbedding
    | AdaptiveSoftmax
    | Attention
    | BatchNorm
    | CausalConv
    | ClassLoss
    | Combine
    | Conv2d
    | CrossEntropy
    | DisentangledBias
    | Dispatch
    | Embedding
    | GroupedLinear
    | IdleWeights
    | Indexer
    | Linear
    | LinearAttention
    | LmHead
    | LoraAdapter
    | Norm
    | Pool
    | PositionTable
    | Residual
    | Rope
    | Router
    | Scale
    | SelectiveScan
    | StateSpaceScan
    | Traced,
    Field(discriminator="family"),
]
