"""Runs in an environment with torchtitan 0.3: options as JSON lines in, verdicts out (parser and ParallelDims)."""

import contextlib
import importlib
import io
import json
import os
import sys
import tempfile

noise = io.StringIO()
with contextlib.redirect_stdout(noise), contextlib.redirect_stderr(noise):
    from torchtitan.config import ConfigManager
    from torchtitan.distributed import ParallelDims


before = list(sys.path)


def verdict(case):
    """What the parser and the degrees say."""
    os.environ.update({"NGPU": str(case["world"])} | case.get("environment", {}))
    try:
        with (
            contextlib.redirect_stdout(noise),
            contextlib.redirect_stderr(noise),
            tempfile.TemporaryDirectory() as folder,
        ):
            for name, text in case.get("files", {}).items():
                with open(os.path.join(folder, name), "w") as file:
                    file.write(text)
            sys.path[:] = [folder, *before]
            importlib.invalidate_caches()
            sys.modules.pop("planned_stages", None)
            config = ConfigManager().parse_args(case["words"])
            dims = ParallelDims.from_config(config.parallelism, case["world"])
        parts = config.parallelism.module_fqns_per_model_part or []
        return {
            "ok": True,
            "layers": [sum(name.startswith("layers.") for name in part) for part in parts],
            "dims": {
                axis: getattr(dims, axis) for axis in ("dp_replicate", "dp_shard", "cp", "tp", "pp", "ep")
            },
        }
    except BaseException as error:
        tail = " ".join(noise.getvalue().split()[-40:]) if isinstance(error, SystemExit) else ""
        return {"ok": False, "error": f"{type(error).__name__}: {error} {tail}"}


for line in sys.stdin:
    print(json.dumps(verdict(json.loads(line))), flush=True)
