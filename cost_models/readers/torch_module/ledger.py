"""What a run on tensors without storage counts: FLOPs, elements moved, tensors kept for backward, attention calls.

The run stands on torch's meta device, where nothing is computed. Attention through
`scaled_dot_product_attention` is caught before it decomposes and kept as one call that saves queries, keys, values
and output, as a flash kernel does; dropout keeps a byte an element, as the fused kernel does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cost_models.operators.base import DtypeRole
from cost_models.readers.torch_module.build import TookTooLong

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """One call of attention, per sequence."""

    heads: int
    kv_heads: int
    queries: int
    keys: int
    qk_dim: int
    v_dim: int
    causal: bool
    window: int = 0


@dataclass(slots=True)
class Cost:
    """Work of one unit at one length, per sequence (or sample)."""

    flops: float = 0.0
    convolution_flops: float = 0.0
    attention_flops: float = 0.0
    """Inside modules that say whether they are causal."""
    causal_flops: float = 0.0
    matmuls: int = 0
    log_shape: tuple[float, float] = (0.0, 0.0)
    """Sums over products of FLOPs x log of their columns and of their depth."""
    moved: float = 0.0
    launches: int = 0
    kept: dict[DtypeRole, float] = field(default_factory=dict)
    attention: list[AttentionCall] = field(default_factory=list)
    width: float = 0.0
    channels: int = 0
    """Size of the last dimension of what the unit hands on."""
    failed: str = ""


class Ledger:
    """Costs by unit; the innermost unit that is open takes what happens."""

    def __init__(self, batch: int, held: set[int], seconds: float, compute_bytes: int = 2) -> None:
        self.costs: dict[tuple[object, ...], Cost] = {}
        self.batch = batch
        self._open: list[tuple[object, ...]] = []
        self._held = held
        self._compute_bytes = compute_bytes
        self._storages: list[object] = []
        self._seen: set[int] = set()
        self._true: list[torch.Tensor] = []
        self._muted = False
        self._end = time.monotonic() + seconds
        self.attending: list[Any] = []
        """Attention modules that are running, innermost last."""

    @contextmanager
    def unit(self, key: tuple[object, ...]) -> Iterator[Cost]:
        """Everything inside goes to this unit."""
        self._open.append(key)
        try:
            yield self.costs.setdefault(key, Cost())
        finally:
            self._open.pop()

    def reopen(self, key: tuple[object, ...]) -> None:
        """What happens outside every other unit goes to this one from now on."""
        self._open[0] = key

    @property
    def current(self) -> Cost:
        """The innermost open unit."""
        return self.costs.setdefault(self._open[-1], Cost())

    def check_time(self) -> None:
        """Raise TookTooLong past the limit."""
        if time.monotonic() > self._end:
            raise TookTooLong

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor is saved for backward: its whole storage counts once, parameters and inputs never."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._held and key not in self._seen:
            self._seen.add(key)
            self._storages.append(storage)
            if not self._muted:
                role = self._role(tensor)
                elements = storage.nbytes() / tensor.element_size() / self.batch
                self.current.kept[role] = self.current.kept.get(role, 0.0) + elements
        return tensor

    def _role(self, tensor: torch.Tensor) -> DtypeRole:
        """Runs are in bf16 where the module can, so that fp32 means an upcast."""
        if tensor.dtype.is_floating_point and tensor.element_size() == self._compute_bytes:
            return DtypeRole.COMPUTE
        return {8: DtypeRole.INT64, 1: DtypeRole.BYTE}.get(tensor.element_size(), DtypeRole.FP32)

    def expect_true(self, tensor: torch.Tensor) -> None:
        """The library checks its input here; there is nothing wrong with ours."""
        self._true.append(tensor)

    def answer(self, tensor: torch.Tensor) -> bool | int | float:
        """A number that the module asks of the data, which there is none of: no padding, no infinity, zero."""
        if tensor.element_size() == 1 and not tensor.dtype.is_floating_point:
            return any(tensor is each for each in self._true)
        return 0.0 if tensor.dtype.is_floating_point else 0

    def count(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """One operation ran."""
        if self._muted:
            return
        from torch.utils.flop_counter import flop_registry

        packet = func._overloadpacket
        cost = self.current
        if packet in flop_registry:
            flops = flop_registry[packet](*args, **kwargs, out_val=out) / self.batch
            cost.flops += flops
            cost.matmuls += 1
            columns, depth = _shape(packet, args)
            held = cost.log_shape
            cost.log_shape = (held[0] + flops * math.log(columns), held[1] + flops * math.log(depth))
            if "convolution" in str(packet):
                cost.convolution_flops += flops
            if self.attending:
                cost.attention_flops += flops
                cost.causal_flops += flops if self.attending[-1].is_causal is True else 0.0
            return
        tensors = list(_tensors((args, kwargs)))
        if not tensors or getattr(func, "is_view", False):
            return
        cost.launches += 1
        cost.moved += sum(each.numel() for each in (*tensors, *_tensors(out))) / self.batch

    def attend(self, query: Any, key: Any, value: Any, masked: bool, causal: bool) -> Any:
        """One attention call, without its scores; its tensors are kept by the call itself."""
        if masked and self.attending:
            causal = self.attending[-1].is_causal is True
        heads = query.shape[-3] if query.dim() > 3 else 1
        kv_heads = key.shape[-3] if key.dim() > 3 else 1
        groups, window = 1, 0
        if self.attending:
            groups = _whole(getattr(self.attending[-1], "num_key_value_groups", 1)) or 1
            window = _window(self.attending[-1])
        if kv_heads == heads and heads % groups == 0:
            kv_heads = heads // groups
        sequences = query.numel() // (heads * query.shape[-2] * query.shape[-1])
        call = AttentionCall(
            int(heads),
            int(kv_heads),
            int(query.shape[-2]),
            int(key.shape[-2]),
            int(query.shape[-1]),
            int(value.shape[-1]),
            causal,
            window,
        )
        # Windows and groups folded into the batch are so many calls a sequence.
        self.current.attention += [call] * max(sequences // self.batch, 1)
        self._muted = True
        try:
            return _flash()(query, key, value)
        finally:
            self._muted = False


@contextmanager
def recording(ledger: Ledger) -> Iterator[None]:
    """Every operation inside goes to the ledger."""
    import torch
    from torch.nn import functional
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            ledger.check_time()
            if func is torch.ops.aten._local_scalar_dense.default:
                return ledger.answer(args[0])
            out = func(*args, **(kwargs or {}))
            if func is torch.ops.aten._is_all_true.default:
                ledger.expect_true(out)
            ledger.count(func, args, kwargs or {}, out)
            return out

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if func is functional.scaled_dot_product_attention:
                return ledger.attend(*_attention_arguments(*args, **kwargs))
            if func is functional.dropout:
                return _dropout(*args, **kwargs)
            return func(*args, **kwargs)

    with ExitStack() as stack:
        stack.enter_context(torch.enable_grad())
        stack.enter_context(torch.autograd.graph.saved_tensors_hooks(ledger.keep, lambda kept: kept))
        stack.enter_context(Operations())  # type: ignore[no-untyped-call]
        stack.enter_context(Functions())
        yield


def _shape(packet: Any, args: Any) -> tuple[int, int]:
    """Columns and depth of a product: of the right matrix, or output channels and one filter's elements."""
    right = args[2] if "add" in str(packet) else args[1]
    if "convolution" in str(packet):
        columns = int(right.shape[0])
        return max(columns, 1), max(right.numel() // max(columns, 1), 1)
    return max(int(right.shape[-1]), 1), max(int(right.shape[-2]), 1)


def _attention_arguments(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **_: Any,
) -> tuple[Any, Any, Any, bool, bool]:
    return query, key, value, attn_mask is not None, bool(is_causal)


def _dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    import torch

    return torch.native_dropout(input, p, True)[0] if training and p > 0 else input


def _flash() -> Any:
    import torch

    class Flash(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, query: Any, key: Any, value: Any) -> Any:
            # Heads beside each other in memory, as flash kernels write them: what follows needs no copy.
            *rows, heads, length, _ = query.shape if query.dim() > 3 else (1, *query.shape)
            out = query.new_empty((*rows, length, heads, value.shape[-1])).transpose(-3, -2)
            out = out if query.dim() > 3 else out[0]
            ctx.save_for_backward(query, key, value, out)
            return out

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            raise NotImplementedError("nothing runs backward here")

    return Flash.apply


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    import torch

    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, list | tuple):
        for each in values:
            yield from _tensors(each)
    elif isinstance(values, dict):
        yield from _tensors(list(values.values()))


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _window(module: object) -> int:
    """How far back an attention module looks, 0 for all."""
    return _whole(getattr(module, "sliding_window", 0))
