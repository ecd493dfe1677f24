"""A run as files: the order, and a shell script with the torchrun command line that starts it."""

import shlex
from pathlib import Path
from typing import Final

from cost_models.errors import BadInput
from planner.executor.launch.environment import WORKER_MODULE, process_settings
from planner.executor.request import RunOrder

SCRIPT: Final = "run.sh"
ORDER: Final = "order.json"


def write_script(order: RunOrder, folder: Path, per_node: int | None = None) -> tuple[Path, ...]:
    """Write `order.json` and `run.sh` into the folder; starts nothing. Raises BadInput where it cannot write.

    `per_node` is the number of processes on each node (None: all on one).
    """
    world = order.world_size
    each = per_node or world
    if world % each:
        raise BadInput(
            f"the plan's {world} processes are no multiple of {each} on a node; give a divisor of {world}"
        )
    text = _script(order, each)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        order.write(folder / ORDER)
        script = folder / SCRIPT
        script.write_text(text, encoding="utf-8")
        script.chmod(0o755)
    except OSError as error:
        raise BadInput(
            f"-o {str(folder)[:200]!r} cannot be written ({error.strerror}); choose another"
        ) from None
    return folder / ORDER, script


def _script(order: RunOrder, per_node: int) -> str:
    nodes = order.world_size // per_node
    where = (
        ["--standalone"]
        if nodes == 1
        else ["--rdzv-backend=c10d", '--rdzv-endpoint="${HEAD:?give the first node as HEAD=host:port}"']
    )
    words = [
        "torchrun",
        *where,
        f"--nnodes={nodes}",
        f"--nproc-per-node={per_node}",
        f"--max-restarts={order.options.restarts}",
        f"-m {WORKER_MODULE}",
        f'"$here/{ORDER}"',
        '"${RUN_DIR:-$here}"',
    ]
    on_cpu = order.situation.cluster.device.architecture == "cpu"
    lines = [
        "#!/bin/sh",
        f"# {order.situation.model.name}: {order.strategy.text()}",
        "# Start it on every node." if nodes > 1 else "# Start it on one machine.",
        "set -eu",
        'here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)',
        *(
            f"export {key}={shlex.quote(value)}"
            for key, value in process_settings(order, on_cpu=on_cpu).items()
        ),
        f"threads=$(( $(nproc) / {per_node} ))",
        'export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$(( threads > 0 ? threads : 1 ))}"',
        "exec " + " \\\n  ".join(words),
    ]
    return "\n".join(lines) + "\n"
