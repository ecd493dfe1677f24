"""Sharded chunks under a split backward: gradients that come after FSDP2's own reduction.

FSDP2 reduces a unit's gradients when its input gradient has been made.  Weight gradients come later; each is reduced
with the next micro-batch's, and those of the last micro-batch here, by what torch's own pipeline runtime calls at the
end of a step (torch.distributed.pipelining.stage, perform_reduce_grad, torch 2.13).
"""

from torch import nn
from torch.distributed.fsdp import FSDPModule


def reduce_rest(module: nn.Module) -> None:
    """Reduce gradients that wait in a chunk's units; collective over its shards, nothing for other chunks."""
    if not isinstance(module, FSDPModule):
        return
    # [Private torch API] The only one of the pipeline; there is no public call that reduces without a backward.
    root = module._get_fsdp_state()
    for state in root._state_ctx.all_states:
        for group in state._fsdp_param_groups:
            group.post_backward()
    root._root_post_backward_final_callback()
