"""A Llama and three training loops as one would write them by hand with torch: DDP, FSDP2, tensor parallel."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

EPS = 1e-6
THETA = 10_000.0


@dataclass(frozen=True)
class Sizes:
    """Of the model."""

    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    layers: int

    @property
    def head(self) -> int:
        """Features of a head."""
        return self.hidden // self.heads


class Attention(nn.Module):
    """Grouped-query attention with rotary positions."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.head = sizes.head
        self.q = nn.Linear(sizes.hidden, sizes.heads * sizes.head, bias=False)
        self.k = nn.Linear(sizes.hidden, sizes.kv_heads * sizes.head, bias=False)
        self.v = nn.Linear(sizes.hidden, sizes.kv_heads * sizes.head, bias=False)
        self.o = nn.Linear(sizes.heads * sizes.head, sizes.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """[B, S, H] -> [B, S, H]."""
        batch, length = x.shape[:2]
        q, k, v = (p(x).view(batch, length, -1, self.head).transpose(1, 2) for p in (self.q, self.k, self.v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.gate = nn.Linear(sizes.hidden, sizes.ffn, bias=False)
        self.up = nn.Linear(sizes.hidden, sizes.ffn, bias=False)
        self.down = nn.Linear(sizes.ffn, sizes.hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, S, H] -> [B, S, H]."""
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    """Norm, attention, norm, feed-forward, with residuals."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(sizes.hidden, EPS), nn.RMSNorm(sizes.hidden, EPS)
        self.attention, self.ffn = Attention(sizes), FeedForward(sizes)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """[B, S, H] -> [B, S, H]."""
        x = x + self.attention(self.norm1(x), cos, sin)
        return x + self.ffn(self.norm2(x))


class Llama(nn.Module):
    """Tokens [B, S] -> logits [B, S, V]."""

    def __init__(self, sizes: Sizes, length: int) -> None:
        super().__init__()
        self.table = nn.Embedding(sizes.vocab, sizes.hidden)
        self.layers = nn.ModuleList(Layer(sizes) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(sizes.hidden, EPS)
        self.head = nn.Linear(sizes.hidden, sizes.vocab, bias=False)
        inverse = THETA ** (-torch.arange(0, sizes.head, 2) / sizes.head)
        angles = torch.outer(torch.arange(length), inverse).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens: Tensor) -> Tensor:
        """[B, S] -> [B, S, V]."""
        x = self.table(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.head(self.norm(x))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding in halves."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


Step = Callable[[list[Tensor], list[Tensor]], float]


def ddp_step(model: Llama) -> Step:
    """DistributedDataParallel with gradient accumulation."""
    return _loop(DistributedDataParallel(model, gradient_as_bucket_view=True), model)


def fsdp_step(model: Llama) -> Step:
    """FSDP2, each layer a unit, resharded after its forward."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return _loop(model, model)


def tp_step(model: Llama) -> Step:
    """Tensor parallel by DTensor with sequence parallelism and a loss over the divided vocabulary."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    whole, slices = Replicate(), Shard(1)
    parallelize_module(
        model,
        mesh,
        {
            "table": RowwiseParallel(input_layouts=whole, output_layouts=slices),
            "norm": SequenceParallel(),
            "head": ColwiseParallel(input_layouts=slices, output_layouts=Shard(-1), use_local_output=False),
        },
    )
    for layer in model.layers:
        plan = {
            "norm1": SequenceParallel(),
            "norm2": SequenceParallel(),
            "attention": PrepareModuleInput(
                input_layouts=(slices, None, None), desired_input_layouts=(whole, None, None)
            ),
            "ffn": PrepareModuleInput(input_layouts=(slices,), desired_input_layouts=(whole,)),
            "attention.o": RowwiseParallel(output_layouts=slices),
            "ffn.down": RowwiseParallel(output_layouts=slices),
        }
        columns = ("attention.q", "attention.k", "attention.v", "ffn.gate", "ffn.up")
        parallelize_module(layer, mesh, plan | {name: ColwiseParallel() for name in columns})
    return _loop(model, model, divided=True)


def _loop(called: nn.Module, model: nn.Module, *, divided: bool = False) -> Step:
    """Forward, backward, clip, AdamW."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)

    def backward(tokens: Tensor, targets: Tensor, count: int) -> Tensor:
        logits = called(tokens)
        if divided:
            with loss_parallel():
                loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten()) / count
                loss.backward()
        else:
            loss = functional.cross_entropy(logits.flatten(0, 1), targets.flatten()) / count
            loss.backward()
        return loss.detach()

    def step(inputs: list[Tensor], targets: list[Tensor]) -> float:
        total = torch.zeros(())
        for index, (x, y) in enumerate(zip(inputs, targets, strict=True)):
            last = index == len(inputs) - 1
            if isinstance(called, DistributedDataParallel) and not last:
                with called.no_sync():
                    total += backward(x, y, len(inputs))
            else:
                loss = backward(x, y, len(inputs))
                total += loss.full_tensor() if divided else loss
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return float(total)

    return step
