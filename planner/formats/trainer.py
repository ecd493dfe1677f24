"""The Hugging Face Trainer around DeepSpeed or FSDP2: its arguments, and a short script that trains with them."""

import json
from typing import Any, Final

from cost_models.errors import BadInput
from cost_models.specs.job import Optimizer, Precision
from cost_models.specs.recompute import ALL_LAYERS
from cost_models.specs.strategy import strategy_from_mapping
from cost_models.units import format_bytes, format_seconds
from planner.evaluation import evaluate
from planner.formats.export import PlannedRun
from planner.situation import situate

ARGUMENTS: Final = "training_arguments.json"
PROGRAM: Final = "train.py"
VERSION: Final = "transformers 5.24"
OPTIMIZERS: Final = {
    Optimizer.ADAMW: "adamw_torch_fused",
    Optimizer.SGD: "sgd",
    Optimizer.ADAFACTOR: "adafactor",
    Optimizer.ADAM8BIT: "adamw_bnb_8bit",
}

SCRIPT: Final = '''"""Trains a transformers model with the arguments beside it; replace the data by your own."""

import json
import os
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainingArguments

SEQ_LEN = {seq_len}


class Synthetic(torch.utils.data.Dataset):
    """Random tokens, so that the first run needs no data."""

    def __init__(self, vocab_size, length=1_000_000):
        self.vocab_size, self.length = vocab_size, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        tokens = torch.randint(self.vocab_size, (SEQ_LEN,), generator=torch.Generator().manual_seed(index))
        return {{"input_ids": tokens, "labels": tokens}}


def main():
    """Build the model from its configuration and train; give MODEL a folder or a name with a config.json."""
    with open(sys.argv[1]) as file:
        arguments = TrainingArguments(**json.load(file))
    config = AutoConfig.from_pretrained(os.environ["MODEL"])
    model = AutoModelForCausalLM.from_config(config, attn_implementation="{attention}")
    Trainer(model=model, args=arguments, train_dataset=Synthetic(config.vocab_size)).train()


if __name__ == "__main__":
    main()
'''


def program_text(run: PlannedRun) -> str:
    """The script for this sequence length and attention."""
    unfused = run.situation.engine.options.attention == "unfused"
    return SCRIPT.format(seq_len=run.job.seq_len, attention="eager" if unfused else "sdpa")


def arguments_of(run: PlannedRun, extra: dict[str, Any]) -> dict[str, Any]:
    """Keys of TrainingArguments; raises BadInput naming what the Trainer lacks."""
    job, strategy = run.job, run.strategy
    if job.precision not in (Precision.BF16, Precision.FP16, Precision.FP32, Precision.TF32):
        raise BadInput(
            f"precision {job.precision.value} is not among the Trainer's; use bf16, fp16, tf32 or fp32"
        )
    if job.optimizer not in OPTIMIZERS:
        names = ", ".join(each.value for each in OPTIMIZERS)
        raise BadInput(f"optimizer {job.optimizer.value} is not among the Trainer's; use {names}")
    if run.model.is_vision or len(run.model.stacks) > 1:
        raise BadInput(
            f"{run.model.name} is no causal language model; the script trains AutoModelForCausalLM alone"
        )
    return {
        "output_dir": "output",
        "per_device_train_batch_size": strategy.mbs,
        "gradient_accumulation_steps": strategy.num_micro_batches(job.global_batch),
        "max_steps": 50,
        "logging_steps": 1,
        "learning_rate": 3e-4,
        "optim": OPTIMIZERS[job.optimizer],
        "bf16": job.precision is Precision.BF16,
        "fp16": job.precision is Precision.FP16,
        "tf32": job.precision is Precision.TF32,
        "gradient_checkpointing": checkpoints(run),
        "save_strategy": "no",
        "report_to": "none",
        **extra,
    }


def checkpoints(run: PlannedRun) -> bool:
    """Whether every layer is recomputed; raises BadInput for what the library's switch cannot say."""
    recompute = run.strategy.recompute
    if recompute.scopes or recompute.full not in (0, ALL_LAYERS, ()):
        if recompute.full_layers(run.strategy.stages) == run.strategy.stages:
            return True
        raise BadInput(
            f"recompute {recompute.text()} is more than transformers' gradient_checkpointing says (none or all "
            "layers); use recompute none or full"
        )
    return recompute.full == ALL_LAYERS


def as_json(values: dict[str, Any]) -> str:
    """JSON text of a settings file."""
    return json.dumps(values, indent=2, allow_nan=False) + "\n"


def module_losses(run: PlannedRun) -> tuple[str, ...]:
    """The script trains transformers' own modules; how far they are from a plan that assumed others."""
    job = run.situation.job_request
    options = {**job.options, "engine.modules": "transformers"}
    theirs = situate(run.model, run.situation.cluster, job.model_copy(update={"options": options}))
    request = strategy_from_mapping(run.strategy.to_json())
    before, after = evaluate(run.situation, request), evaluate(theirs, request)
    if before.memory.device_used_bytes == after.memory.device_used_bytes and before.step_s == after.step_s:
        return ()
    planned = run.situation.engine.options.model_dump()["modules"]
    return (
        f"engine.modules={planned} is planned, the script runs transformers' modules: "
        f"{format_bytes(after.memory.device_used_bytes)} instead of {format_bytes(before.memory.device_used_bytes)}, "
        f"{format_seconds(after.step_s)} a step instead of {format_seconds(before.step_s)} "
        "(plan with --set engine.modules=transformers)",
    )
