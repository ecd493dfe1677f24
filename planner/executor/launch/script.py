"""A run as files: the order, and a shell script with the torchrun command line that starts it on one node.

On several nodes it takes NODE_RANK, MASTER_ADDR and MASTER_PORT, as the exported scripts of other frameworks do. The
rendezvous is static: torch's dynamic one numbers nodes by the names of their hosts, which would scatter inner axes.
"""

import shlex
from pathlib import Path
from typing import Final

from cost_models.errors import BadInput
from planner.executor.launch.environment import WORKER_MODULE, process_settings
from planner.executor.launch.job import LOGS, MASTER_PORT
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
    words = [
        "torchrun",
        *_meeting(order, nodes),
        f"--nproc-per-node={per_node}",
        f'--log-dir="$run_dir/{LOGS}/node-${{NODE_RANK:-0}}"',
        "--tee=3",
        f"-m {WORKER_MODULE}",
        f'"$here/{ORDER}"',
        '"$run_dir"',
    ]
    on_cpu = order.situation.cluster.device.architecture == "cpu"
    lines = [
        "#!/bin/sh",
        f"# {order.situation.model.name}: {order.strategy.text()}",
        _where(nodes),
        "set -eu",
        'here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)',
        'run_dir="${RUN_DIR:-$here}"',
        *(
            f"export {key}={shlex.quote(value)}"
            for key, value in process_settings(order, on_cpu=on_cpu).items()
        ),
        f"threads=$(( $(nproc) / {per_node} ))",
        'export OMP_NUM_THREADS="${OMP_NUM_THREADS:-$(( threads > 0 ? threads : 1 ))}"',
        "exec " + " \\\n  ".join(words),
    ]
    return "\n".join(lines) + "\n"


def _where(nodes: int) -> str:
    if nodes == 1:
        return "# Start it on one machine."
    return f"# Start it on {nodes} nodes, NODE_RANK=0 to {nodes - 1}, MASTER_ADDR the first of them."


def _meeting(order: RunOrder, nodes: int) -> list[str]:
    """How the nodes find each other; a failed rank of several nodes ends them all, and the whole job starts anew."""
    if nodes == 1:
        return ["--standalone", "--nnodes=1", f"--max-restarts={order.options.restarts}"]
    return [
        f"--nnodes={nodes}",
        '--node-rank="${NODE_RANK:?set NODE_RANK to the number of this node}"',
        '--master-addr="${MASTER_ADDR:?set MASTER_ADDR to the first node}"',
        f'--master-port="${{MASTER_PORT:-{MASTER_PORT}}}"',
        "--max-restarts=0",
    ]
