"""Runs in an environment with deepspeed 0.19 and transformers: exported files as JSON lines in, verdicts out."""

import contextlib
import io
import json
import os
import sys

os.environ["DS_ACCELERATOR"] = "cpu"
noise = io.StringIO()
with contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise):
    import deepspeed.runtime.config as config_module
    from deepspeed import comm
    from deepspeed.runtime.config import DeepSpeedConfig
    from transformers import TrainingArguments


def verdict(case):
    """What DeepSpeedConfig and TrainingArguments say."""
    world = case["world"]
    comm.get_world_size = config_module.dist.get_world_size = lambda *_, **__: world
    comm.get_rank = config_module.dist.get_rank = lambda *_, **__: 0
    try:
        with contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise):
            config = DeepSpeedConfig(case["config"])
            arguments = {k: v for k, v in case["arguments"].items() if k != "deepspeed"}
            if arguments:
                TrainingArguments(**{**arguments, "use_cpu": True, "tf32": None})
        zero = config.zero_config
        return {
            "ok": True,
            "stage": int(zero.stage),
            "batch": [
                config.train_batch_size,
                config.train_micro_batch_size_per_gpu,
                config.gradient_accumulation_steps,
            ],
        }
    except BaseException as error:
        return {"ok": False, "error": f"{type(error).__name__}: {error}"}


for line in sys.stdin:
    print(json.dumps(verdict(json.loads(line))), flush=True)
