"""The module that is written: it holds the plan as one dictionary and applies it; it needs only torch."""

from typing import Final

TEMPLATE: Final = '''{header}
"""Applies PLAN to a model of the transformers library: see `parallelize` and `train_step`."""

import os
import time

import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper, offload_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

PLAN = {plan}

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = {{"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32}}
COLUMNS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
ROWS = ("o_proj", "down_proj")


def make_mesh():
    """Ranks as replicas x shards x tensor-parallel, the last one innermost."""
    sizes = (PLAN["dp_replicate"], PLAN["dp_shard"], PLAN["tp"])
    return init_device_mesh(DEVICE, sizes, mesh_dim_names=("replicate", "shard", "tp"))


def parallelize(model, mesh):
    """Tensor parallel inside each layer, checkpoints around it, FSDP2 around both; the model is changed in place."""
    layers = model.model.layers
    for index, layer in enumerate(layers):
        if PLAN["tp"] > 1:
            split(layer, mesh["tp"])
        if index in recomputed(len(layers)):
            layers[index] = layer = checkpoint_wrapper(layer)
        if index in offloaded(len(layers)):
            layers[index] = layer = offload_wrapper(layer)
        fully_shard(layer, **policies(mesh))
    fully_shard(model, **policies(mesh))
    return model


def split(layer, mesh):
    """Products by columns and by rows; attention and MLP each end in one all-reduce."""
    names = [name for name, _ in layer.named_modules()]
    plan = {{name: ColwiseParallel() for name in names if name.endswith(COLUMNS)}}
    plan |= {{name: RowwiseParallel() for name in names if name.endswith(ROWS)}}
    parallelize_module(layer, mesh, plan)


def recomputed(count):
    """Indices of the layers that are computed again in backward."""
    return range(min(PLAN["recomputed_layers"], count))


def offloaded(count):
    """Indices of the layers whose saved tensors wait for backward in host memory."""
    kind, _, number = PLAN["act_offload"].partition(":")
    return {{"none": range(0), "checkpoints": recomputed(count)}}.get(kind, range(int(number or count)))


def policies(mesh):
    """How FSDP2 gathers, reduces and keeps."""
    replicated = PLAN["dp_replicate"] > 1
    return {{
        "mesh": mesh["replicate", "shard"] if replicated else mesh["shard"],
        "reshard_after_forward": PLAN["reshard_after_forward"],
        "mp_policy": MixedPrecisionPolicy(
            param_dtype=DTYPES[PLAN["precision"]], reduce_dtype=DTYPES[PLAN["grad_dtype"]]
        ),
        "offload_policy": CPUOffloadPolicy() if PLAN["offload"] == "parameters" else OffloadPolicy(),
    }}


def make_optimizer(parameters):
    """The optimizer that the plan's memory is counted for."""
    kinds = {{"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}}
    momentum = {{"momentum": 0.9}} if PLAN["optimizer"] == "sgd" else {{}}
    return kinds[PLAN["optimizer"]](parameters, lr=3e-4, **momentum)


def clip(gradients, limit):
    """Scale gradients to a total norm; norms of different meshes cannot be stacked, so each mesh has its own first."""
    meshes = {{}}
    for gradient in gradients:
        meshes.setdefault(gradient.device_mesh, []).append(gradient)
    norms = [torch.nn.utils.get_total_norm(group).full_tensor() for group in meshes.values()]
    total = torch.linalg.vector_norm(torch.stack(norms))
    scale = torch.clamp(limit / (total + 1e-6), max=1.0).item()
    for gradient in gradients:
        gradient.mul_(scale)


def train_step(model, optimizer, batches):
    """One optimizer step over the micro-batches of this rank; the mean loss."""
    total = 0.0
    for index, tokens in enumerate(batches):
        model.set_requires_gradient_sync(index == len(batches) - 1 or PLAN["sync_every_micro_batch"])
        loss = model(input_ids=tokens, labels=tokens).loss / len(batches)
        loss.backward()
        total += loss.item()
    clip([parameter.grad for parameter in model.parameters() if parameter.grad is not None], limit=1.0)
    optimizer.step()
    optimizer.zero_grad()
    return total


def main():
    """Train on random tokens; MODEL names a folder with a config.json, STEPS how many steps."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.distributed.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
    if DEVICE == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    config = AutoConfig.from_pretrained(os.environ["MODEL"])
    config.use_cache = False
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation=PLAN["attention"])
    parallelize(model, make_mesh())
    model.to_empty(device=DEVICE if PLAN["offload"] == "none" else "cpu")
    torch.manual_seed(0)
    model.init_weights()
    optimizer = make_optimizer(model.parameters())
    rank = torch.distributed.get_rank() // PLAN["tp"]
    random = torch.Generator().manual_seed(rank)
    shape = (PLAN["micro_batch"], PLAN["seq_len"])
    for step in range(int(os.environ.get("STEPS", "10"))):
        batches = [
            torch.randint(config.vocab_size, shape, generator=random).to(DEVICE) for _ in range(PLAN["micro_batches"])
        ]
        started = time.perf_counter()
        loss = train_step(model, optimizer, batches)
        if torch.distributed.get_rank() == 0:
            print(f"step {{step}} loss {{loss:.4f}} {{time.perf_counter() - started:.3f}} s")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
'''
