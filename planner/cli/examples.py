"""What to type: lines that the help of each command ends with."""

from typing import Final

_JOB: Final = "--model config.json --cluster dgx-a100:32 --seq-len 4096 --global-batch 512"
EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "plan": (
        f"planner plan {_JOB} -o plan.json",
        "planner plan --model llama-3.1-8b --cluster mine.toml --seq-len 8192 --global-batch 128 --report plan.html",
    ),
    "size": (
        "planner size --model llama-3.1-70b --cluster dgx-h100 --seq-len 8192 --global-batch 512 --tokens 1T --days 60",
    ),
    "sweep": ("planner sweep sweep.yaml",),
    "evaluate": (
        f'planner evaluate {_JOB} --strategy "tp=4,pp=2,mbs=2"',
        "planner evaluate --settings train.sh --cluster dgx-a100:32",
    ),
    "explain": (
        "planner explain plan.json --report why.html",
        'planner explain plan.json --against "tp=8"',
    ),
    "compare": ('planner compare plan.json "tp=8,pp=4"', "planner compare before.json after.json"),
    "probe": ("planner probe plan.json --devices 8 -o probe.json",),
    "check": ("planner check plan.json", "planner check planner.yaml --output-format github"),
    "baseline": ("planner baseline planner.yaml -o baseline.json",),
    "simulate": ("planner simulate plan.json --trace trace.json",),
    "export": ("planner export plan.json --to megatron -o out",),
    "run": ("planner run plan.json --steps 20",),
    "inspect": ("planner inspect --model config.json --seq-len 4096",),
    "catalog": (
        "planner catalog clusters",
        "planner catalog clusters dgx-a100",
        "planner catalog clusters mine.toml",
    ),
    "validate": ("planner validate runs.csv --plot runs.svg",),
    "calibrate": ("planner calibrate runs.csv -o profiles-ours",),
    "profile": ("planner profile --model llama-3.2-1b --minutes 10",),
    "loop": ("planner loop --small",),
}


def epilog(name: str) -> str | None:
    """The lines below a command's options, as click keeps them; None where there is none."""
    lines = EXAMPLES.get(name)
    return None if lines is None else "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
