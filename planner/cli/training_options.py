"""The options of `planner run`."""

import click

from planner.cli.types import Number, OneOf, WholeNumber

LAUNCHERS = ("local", "slurm", "kubernetes")
MAX_COUNT = 2**31 - 1
OPTION_KEYS = (
    "steps",
    "seed",
    "data",
    "tokenizer",
    "data_dtype",
    "first_sample",
    "factory",
    "lr",
    "weight_decay",
    "max_norm",
    "warmup_steps",
    "moe_aux_loss",
    "moe_aux_scope",
    "moe_bias_rate",
    "mtp_weight",
    "log_dir",
    "restarts",
    "timeout_s",
    "every",
    "keep",
    "epochs",
    "save_dtype",
    "save_shard_bytes",
    "lora_alpha",
)
FOLDERS = ("checkpoint", "resume", "weights", "save_weights", "adapters", "adapters_from")
"""Options that name folders, from where the command is started."""
DATA_HELP = (
    "synthetic (default), a text file, tokens (.npy, .bin), or package.module:function giving an iterable."
)

RUN_OPTIONS = (
    click.option("--launcher", type=OneOf(LAUNCHERS), default="local", help="Where it runs; default local."),
    click.option(
        "--launch",
        metavar="KEY=VALUE",
        multiple=True,
        help="What the launcher is told (partition, time, image, namespace …); repeatable.",
    ),
    click.option("--name", metavar="NAME", help="Of the job; one of this name that is there is followed."),
    click.option("--detach", is_flag=True, help="Submit the job and return."),
    click.option("--cancel", is_flag=True, help="End the job of --name."),
    click.option("--script", metavar="FILE", help="A script of `planner export` to start instead."),
    click.option("--steps", type=WholeNumber(1, 1_000_000_000), help="Optimizer steps; default 10."),
    click.option("--verify", is_flag=True, help="Hold the layout against one process, on a small twin."),
    click.option("--profile", is_flag=True, help="Write a trace per rank for Perfetto into --log-dir."),
    click.option("--dry-run", is_flag=True, help="Write script and order into -o; start nothing."),
    click.option("-o", "--output", metavar="DIR", help="Folder of a dry run."),
    click.option("--data", metavar="DATA", help=DATA_HELP),
    click.option("--tokenizer", metavar="FILE", help="A tokenizer.json for a text file; default bytes."),
    click.option("--data-dtype", type=OneOf(("uint16", "uint32")), help="Of a .bin file; default uint16."),
    click.option(
        "--first-sample", type=WholeNumber(0, MAX_COUNT), help="Where the data goes on; weights start anew."
    ),
    click.option("--factory", metavar="ENTRY", help="package.module:function that builds your own model."),
    click.option("--seed", type=WholeNumber(0, MAX_COUNT), help="Of weights and data; default 0."),
    click.option("--lr", type=Number(1e-12, 1e6), help="Learning rate; default 3e-4."),
    click.option("--weight-decay", type=Number(0, 1e6), help="Default 0.01."),
    click.option("--max-norm", type=Number(1e-12, 1e12), help="Clip the gradient; default 1."),
    click.option("--no-clip", is_flag=True, help="Do not clip the gradient."),
    click.option(
        "--warmup-steps", type=WholeNumber(0, 1_000_000_000), help="Steps to the full rate; default 0."
    ),
    click.option(
        "--moe-aux-loss", type=Number(0, 1e6), help="Factor of the experts' balancing loss; default 0."
    ),
    click.option(
        "--moe-aux-scope", type=OneOf(("batch", "sequence")), help="Tokens that it balances; default batch."
    ),
    click.option(
        "--moe-bias-rate", type=Number(0, 1), help="Step of a router's balancing correction; default 0."
    ),
    click.option(
        "--mtp-weight", type=Number(0, 1e6), help="Of predictions' losses (train_mtp); default 0.3."
    ),
    click.option(
        "--nproc", type=WholeNumber(1, 100_000), help="Processes on each node; not for a run on this machine."
    ),
    click.option("--log-dir", metavar="DIR", help="Keep logs, events and traces here."),
    click.option("--restarts", type=WholeNumber(0, 1000), help="Restarts after a failed rank; default 0."),
    click.option("--checkpoint", metavar="DIR", help="Write checkpoints here."),
    click.option(
        "--every", type=WholeNumber(1, 1_000_000_000), help="Steps between checkpoints; default 100."
    ),
    click.option("--keep", type=WholeNumber(0, 1_000_000_000), help="Newest that stay, 0 all; default 3."),
    click.option(
        "--resume",
        metavar="[auto|PATH]",
        is_flag=False,
        flag_value="auto",
        help="Go on from a checkpoint; auto: the last good one of --checkpoint, if any.",
    ),
    click.option(
        "--epochs", type=WholeNumber(1, 1_000_000_000), help="Passes through the data; default no end."
    ),
    click.option(
        "--weights", metavar="DIR", help="Begin with a Hugging Face folder's (config.json, safetensors)."
    ),
    click.option(
        "--lora-alpha", type=Number(1e-6, 1e6), help="Adapters add alpha / rank times; default the rank."
    ),
    click.option("--adapters", metavar="DIR", help="Write LoRA adapters there as peft does, at the end."),
    click.option("--adapters-from", metavar="DIR", help="Begin with adapters that peft or a run wrote."),
    click.option("--save-weights", metavar="DIR", help="Write such a folder after the last step."),
    click.option(
        "--save-dtype", type=OneOf(("fp32", "bf16", "fp16")), help="Of what is written; default the config's."
    ),
    click.option(
        "--save-shard-bytes", type=WholeNumber(1, 10**15), help="Most bytes of one file; default 5 GB."
    ),
    click.option(
        "--timeout-s",
        type=Number(1, 86_400),
        help="Longest wait of ranks in a step; default a minute, or 20 steps.",
    ),
)
