"""Sharded chunks (FSDP2) under a split backward: when their gradients are reduced.

FSDP2 reduces a unit's gradients when its input gradient has been made, which is too early where weight gradients come
later.  So halves of backwards only add to the whole gradients; a whole backward reduces all that is there, and what is
left is reduced after the last weight gradient.
"""

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from cost_models.schedule import Phase


def reduce_with(module: nn.Module, phase: Phase) -> None:
    """Say whether the pass that follows reduces gradients; nothing for chunks that are not sharded."""
    if isinstance(module, FSDPModule):
        module.set_requires_gradient_sync(phase is Phase.BACKWARD)


def check_reducible(module: nn.Module) -> None:
    """Raise RuntimeError where this torch has not what `reduce_rest` calls."""
    if not isinstance(module, FSDPModule):
        return
    root = getattr(module, "_get_fsdp_state", lambda: None)()
    states = getattr(getattr(root, "_state_ctx", None), "all_states", None)
    if states is None or not hasattr(root, "_root_post_backward_final_callback"):
        msg = (
            f"torch {torch.__version__} cannot reduce sharded gradients after a split backward as torch 2.13 can; "
            "use zero 0 or 1, or a schedule with whole backwards"
        )
        raise RuntimeError(msg)


def reduce_rest(module: nn.Module) -> None:
    """Reduce what halves of backwards have left; collective over the chunk's data ranks.

    By the calls that end a step in torch's own pipeline runtime (torch.distributed.pipelining.stage,
    perform_reduce_grad, torch 2.13).
    """
    if not isinstance(module, FSDPModule):
        return
    module.set_requires_gradient_sync(True)
    # [Private torch API] The only one of the pipeline: no public call reduces without a backward.
    root = module._get_fsdp_state()
    for state in root._state_ctx.all_states:
        for group in state._fsdp_param_groups:
            group.post_backward()
    root._root_post_backward_final_callback()
