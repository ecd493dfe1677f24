"""Runs in an environment with torchtitan 0.3: options as JSON lines in, verdicts out (parser and ParallelDims)."""

import contextlib
import io
import json
import os
import sys

noise = io.StringIO()
with contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise):
    from torchtitan.config import ConfigManager
    from torchtitan.distributed import ParallelDims


def verdict(case):
    """What the parser and the degrees say."""
    os.environ["NGPU"] = str(case["world"])
    try:
        with contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise):
            config = ConfigManager().parse_args(case["words"])
            dims = ParallelDims.from_config(config.parallelism, case["world"])
        return {
            "ok": True,
            "dims": {
                axis: getattr(dims, axis) for axis in ("dp_replicate", "dp_shard", "cp", "tp", "pp", "ep")
            },
        }
    except BaseException as error:
        tail = " ".join(noise.getvalue().split()[-40:]) if isinstance(error, SystemExit) else ""
        return {"ok": False, "error": f"{type(error).__name__}: {error} {tail}"}


for line in sys.stdin:
    print(json.dumps(verdict(json.loads(line))), flush=True)
