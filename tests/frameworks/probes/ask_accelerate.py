"""Runs in an environment with accelerate 1.15: exported YAML as JSON lines in, verdicts out."""

import contextlib
import io
import json
import os
import sys
import tempfile

noise = io.StringIO()
with contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise):
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.parallelism_config import ParallelismConfig
    from accelerate.utils import FullyShardedDataParallelPlugin
    from accelerate.utils.launch import prepare_multi_gpu_env


class Accelerator:
    """What ParallelismConfig asks of an accelerator."""

    def __init__(self, world):
        self.num_processes = world
        self.multi_device = True
        self.is_fsdp2 = True
        self.distributed_type = None


def verdict(case):
    """From the file to the plugins, as `accelerate launch` goes."""
    before = dict(os.environ)
    try:
        with (
            contextlib.redirect_stdout(noise),
            contextlib.redirect_stderr(noise),
            tempfile.TemporaryDirectory() as folder,
        ):
            path = os.path.join(folder, "accelerate.yaml")
            with open(path, "w") as file:
                file.write(case["text"])
            load_config_from_file(path)
            args = launch_command_parser().parse_args(["--config_file", path, "train.py"])
            args, _, _ = _validate_launch_command(args)
            os.environ.update({key: str(value) for key, value in prepare_multi_gpu_env(args).items()})
            found = {"ok": True, "fsdp": bool(args.use_fsdp)}
            if args.use_fsdp:
                plugin = FullyShardedDataParallelPlugin()
                found |= {"version": plugin.fsdp_version, "reshard": bool(plugin.reshard_after_forward)}
            if os.environ.get("ACCELERATE_USE_PARALLELISM_CONFIG") == "true":
                ParallelismConfig()._validate_accelerator(Accelerator(case["world"]))
            return found
    except BaseException as error:
        return {"ok": False, "error": f"{type(error).__name__}: {error}"}
    finally:
        os.environ.clear()
        os.environ.update(before)


for line in sys.stdin:
    print(json.dumps(verdict(json.loads(line))), flush=True)
