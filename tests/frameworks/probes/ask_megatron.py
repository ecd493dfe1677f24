"""Runs in an environment with megatron-core 0.19: arguments as JSON lines in, its verdict on each as JSON lines out.

Three layers, all without a GPU: the parser with its validation and TransformerConfig; process groups on torch's fake
backend; layers of every pipeline rank and chunk. The device's generation is an input of the first layer.
"""

import contextlib
import io
import json
import os
import sys
import typing

import torch
import typing_extensions

typing.override = typing_extensions.override  # the package declares Python 3.12; this is its only need of it


class Properties:
    """What the parser asks of a Hopper device."""

    major, minor, multi_processor_count, name, total_memory = 9, 0, 132, "target", 80 << 30


torch.cuda.get_device_capability = lambda *_: (9, 0)
torch.cuda.get_device_properties = lambda *_: Properties()

from megatron.core import parallel_state
from megatron.core.transformer.transformer_block import get_num_layers_to_build
from megatron.training.arguments import (
    core_transformer_config_from_args,
    parse_args,
    validate_args,
)
from torch.testing._internal.distributed.fake_pg import FakeStore


def validated(words, world):
    """Layer a: the arguments and the model's configuration."""
    sys.argv = ["train", *words]
    args = parse_args()
    validate_args(args, {})
    return args, core_transformer_config_from_args(args)


def grouped(args, config, world):
    """Layer b: process groups of every kind; while they stand, layer c."""
    torch.distributed.init_process_group("fake", rank=0, world_size=world, store=FakeStore())
    try:
        parallel_state.initialize_model_parallel(
            args.tensor_model_parallel_size,
            args.pipeline_model_parallel_size,
            args.virtual_pipeline_model_parallel_size,
            context_parallel_size=args.context_parallel_size,
            expert_model_parallel_size=args.expert_model_parallel_size,
            num_distributed_optimizer_instances=args.num_distributed_optimizer_instances,
            expert_tensor_parallel_size=args.expert_tensor_parallel_size,
            order="tp-cp-ep-pp-dp" if args.use_tp_pp_dp_mapping else "tp-cp-ep-dp-pp",
            create_gloo_process_groups=False,
        )
        return {"dp": parallel_state.get_data_parallel_world_size(), "layers": layers(args, config)}
    finally:
        parallel_state.destroy_model_parallel()
        torch.distributed.destroy_process_group()


def layers(args, config):
    """Layer c: layers of every pipeline rank and chunk, chunks of a rank outside."""
    chunks = args.virtual_pipeline_model_parallel_size or 1
    layout = getattr(config, "pipeline_model_parallel_layout", None)

    def count(rank, stage):
        if layout is not None:  # the function below asks it for the rank of this process
            return layout.get_num_layers_to_build(vp_stage=stage, pp_rank=rank)
        return get_num_layers_to_build(config, vp_stage=stage, pp_rank=rank)

    return [
        count(rank, chunk if chunks > 1 else None)
        for chunk in range(chunks)
        for rank in range(args.pipeline_model_parallel_size)
    ]


def verdict(case):
    """What the three layers say of one case."""
    os.environ["WORLD_SIZE"] = str(case["world"])
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    os.environ.update(case["environment"])
    noise = io.StringIO()
    try:
        with contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise):
            args, config = validated(case["words"], case["world"])
            return {"ok": True} | grouped(args, config, case["world"])
    except BaseException as error:  # argparse exits
        tail = noise.getvalue().strip().splitlines()[-1:] if isinstance(error, SystemExit) else [""]
        return {"ok": False, "error": f"{type(error).__name__}: {error} {tail[0]}"}


for line in sys.stdin:
    print(json.dumps(verdict(json.loads(line))), flush=True)
