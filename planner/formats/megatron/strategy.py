"""Megatron-LM arguments -> the strategy: degrees, stages, recompute, distributed optimizer."""

import re
from typing import Any, Final

from cost_models.engines import even_stages
from cost_models.engines.megatron_fsdp import STRATEGIES
from cost_models.engines.rules import nearest_worlds
from cost_models.errors import BadInput
from cost_models.specs.offload import Offload
from cost_models.specs.strategy import StrategyRequest, divisors
from planner.formats.megatron.arguments import Arguments

_GROUP: Final = re.compile(r"\(([^()]*)\)\*(\d+)")
_REPEAT: Final = re.compile(r"([A-Za-z])\*(\d+)")
MOST_CHARACTERS: Final = 200_000
_LAYOUT: Final = re.compile(r"[EtmL|]*")


def degrees(arguments: Arguments) -> dict[str, int]:
    """tp, pp, cp, ep and etp; the expert tensor parallel size is tp's unless stated (training/arguments.py)."""
    tp = arguments.whole("tensor-model-parallel-size", 1)
    experts = arguments.has("num-experts")
    etp = arguments.whole("expert-tensor-parallel-size", tp) if experts else 1
    if experts and tp > 1 and not arguments.has("expert-tensor-parallel-size"):
        arguments.assume("expert-tensor-parallel-size", tp)
    return {
        "tp": tp,
        "pp": arguments.whole("pipeline-model-parallel-size", 1),
        "cp": arguments.whole("context-parallel-size", 1),
        "ep": arguments.whole("expert-model-parallel-size", 1) if experts else 1,
        "etp": etp,
    }


def read_strategy(arguments: Arguments, num_layers: int, devices: int) -> StrategyRequest:
    """The strategy of a run on so many devices; raises BadInput naming the argument."""
    axes = degrees(arguments)
    inner = axes["tp"] * axes["pp"] * axes["cp"]
    if devices % inner:
        raise BadInput(
            f"world size {devices} is not divisible by tensor {axes['tp']} x pipeline {axes['pp']} x context "
            f"{axes['cp']} = {inner}; use {', or '.join(nearest_worlds(devices, inner, 'tensor x pipeline x context'))}"
        )
    stages = read_stages(arguments, num_layers, axes["pp"])
    values: dict[str, Any] = {
        **axes,
        "dp": devices // inner,
        "vpp": max(len(stages) // axes["pp"], 1),
        "stages": stages,
        "mbs": arguments.whole("micro-batch-size"),
        "sp": arguments.flag("sequence-parallel") and axes["tp"] > 1,
        "zero": _zero(arguments),
        "recompute": _recompute(arguments, num_layers, stages),
        "cp_kind": _ring(arguments, axes["cp"]),
    }
    group = arguments.whole("microbatch-group-size-per-virtual-pipeline-stage", axes["pp"])
    if values["vpp"] > 1 and group != axes["pp"]:
        arguments.assume("microbatch-group-size-per-virtual-pipeline-stage", axes["pp"])
    replicas = arguments.whole("num-distributed-optimizer-instances", 1)
    if replicas > 1 and values["zero"]:
        values["dp_replicate"] = replicas
    if arguments.flag("optimizer-cpu-offload"):
        share = arguments.number("optimizer-offload-fraction", 1.0)
        if share > 1.0:
            raise BadInput(f"--optimizer-offload-fraction is {share:g}; give a share from 0 to 1")
        values["offload"] = Offload(share).text()
    moved = arguments.whole("cpu-offloading-num-layers", 0)  # above 0 it is the switch, too
    arguments.flag("cpu-offloading")
    if moved:
        values["act_offload"] = f"blocks:{moved}"
    if arguments.flag("fine-grained-activation-offloading"):
        values["act_offload"] = f"modules:{'+'.join(_offloaded(arguments, moved))}"
    if arguments.flag("use-tp-pp-dp-mapping"):
        values["order"] = ("tp", "cp", "ep", "pp", "dp")
    return StrategyRequest(**values)


def _offloaded(arguments: Arguments, layers: int) -> list[str]:
    """Modules whose tensors go to the host; raises BadInput for none, or beside whole layers."""
    modules = arguments.text("offload-modules").strip("[]").replace(",", " ").split()
    if not modules or layers:
        beside = f" beside --cpu-offloading-num-layers {layers}" if layers else " without --offload-modules"
        raise BadInput(
            f"--fine-grained-activation-offloading{beside}; name modules alone, such as core_attn attn_proj expert_fc1",
            pointer="/offload-modules",
        )
    return modules


def _ring(arguments: Arguments, cp: int) -> str:
    """How attention crosses context ranks; the mixed kind is all-to-all inside groups of ranks and a ring across."""
    kinds = {"p2p": "ring", "a2a": "ulysses", "all_gather": "allgather", "a2a+p2p": "hierarchical"}
    words = set(arguments.text("cp-comm-type", "p2p").split())
    unknown = sorted(words - set(kinds))
    if unknown or len(words) > 1:
        raise BadInput(
            f"--cp-comm-type {' '.join(unknown or sorted(words)):.40} is not modelled; use one of {', '.join(kinds)} "
            "for all layers",
            pointer="/cp-comm-type",
        )
    kind = kinds[words.pop() if words else "p2p"]
    if kind != "hierarchical":
        return kind
    return _hierarchical(arguments, cp) if cp > 1 else "ring"


def _hierarchical(arguments: Arguments, cp: int) -> str:
    """`hierarchical:N` of --hierarchical-context-parallel-sizes N M; one of the plain kinds where N or M is one."""
    words = arguments.text("hierarchical-context-parallel-sizes").strip("[]").replace(",", " ").split()
    sizes = [int(word) for word in words if word.isdigit() and len(word) < 6]
    if len(sizes) != 2 or len(words) != 2 or sizes[0] * sizes[1] != cp:
        given = " ".join(words) or "is missing"
        inner = max(d for d in divisors(cp) if d * d <= cp)
        raise BadInput(
            f"--hierarchical-context-parallel-sizes {given:.40} with --cp-comm-type a2a+p2p: give two sizes whose "
            f"product is --context-parallel-size {cp}, the inner one first, as in {inner} {cp // inner}",
            pointer="/hierarchical-context-parallel-sizes",
        )
    return "ring" if sizes[0] == 1 else "ulysses" if sizes[1] == 1 else f"hierarchical:{sizes[0]}"


def _zero(arguments: Arguments) -> int:
    """The distributed optimizer, or the sharding strategy of Megatron-FSDP."""
    if not arguments.flag("use-megatron-fsdp"):
        return 1 if arguments.flag("use-distributed-optimizer") else 0
    name = arguments.text("data-parallel-sharding-strategy")
    if not name:
        name = STRATEGIES[-1]
        arguments.assume("data-parallel-sharding-strategy", name)
    if name not in STRATEGIES:
        raise BadInput(
            f"--data-parallel-sharding-strategy {name:.40} is not known; use {', '.join(STRATEGIES)}",
            pointer="/data-parallel-sharding-strategy",
        )
    return STRATEGIES.index(name)


def read_stages(arguments: Arguments, num_layers: int, pp: int) -> tuple[int, ...]:
    """Blocks of every virtual stage in global order, from whichever of the four spellings is used; prediction layers
    that a layout places before the loss's stage are one more block."""
    if arguments.has("pipeline-model-parallel-layout"):
        stages = list(layout_stages(arguments.text("pipeline-model-parallel-layout"), num_layers))
        holder = predictions_stage(arguments)
        if holder is not None:
            stages[holder] += 1
        return _filled(tuple(stages))
    chunks = _chunks(arguments, num_layers, pp)
    first = arguments.whole("decoder-first-pipeline-num-layers", 0, low=0)
    last = arguments.whole("decoder-last-pipeline-num-layers", 0, low=0)
    if pp > 1 and (first or last):
        return _uneven_ends(num_layers, pp, chunks, first, last)
    extra_first = arguments.flag("account-for-embedding-in-pipeline-split")
    extra_last = arguments.flag("account-for-loss-in-pipeline-split")
    total, parts = num_layers + extra_first + extra_last, pp * chunks
    if total % parts:
        raise BadInput(
            f"--num-layers {num_layers}{_counted(extra_first + extra_last)} is not divisible by {parts} virtual "
            f"stages; use {_listed(total)} of them, or cut unevenly with --pipeline-model-parallel-layout, as in "
            f"{'+'.join(map(str, even_stages(num_layers, min(parts, num_layers))))}",
            pointer="/num-layers",
        )
    sizes = [total // parts] * parts
    sizes[0] -= extra_first
    sizes[-1] -= extra_last
    return _filled(tuple(sizes))


def _filled(stages: tuple[int, ...], lone_ends: bool = True) -> tuple[int, ...]:
    """The stages; raises BadInput where one but the first (embedding) and the last (loss) holds no layer."""
    ends = (0, len(stages) - 1) if lone_ends else ()
    empty = [index for index, size in enumerate(stages) if size < 0 or (size < 1 and index not in ends)]
    if empty:
        raise BadInput(
            f"--pipeline-model-parallel-size and its layout leave virtual stage {empty[0]} of {len(stages)} without a "
            "layer, which only the first (embedding) and the last (loss) may; give it one",
            pointer="/pipeline-model-parallel-layout",
        )
    return stages


def _counted(extra: int) -> str:
    """What counts as layers beside the layers."""
    return f", {extra} more for embedding and loss," if extra else ""


def _chunks(arguments: Arguments, num_layers: int, pp: int) -> int:
    """Chunks per pipeline rank."""
    given = [
        name
        for name in ("num-layers-per-virtual-pipeline-stage", "num-virtual-stages-per-pipeline-rank")
        if arguments.has(name)
    ]
    if len(given) > 1:
        raise BadInput(f"--{given[0]} and --{given[1]} are both given; keep one", pointer=f"/{given[1]}")
    if not given or pp == 1:
        return 1
    if given[0] == "num-virtual-stages-per-pipeline-rank":
        return arguments.whole(given[0])
    each = arguments.whole(given[0])
    rank_layers = (
        num_layers
        + arguments.flag("account-for-embedding-in-pipeline-split")
        + arguments.flag("account-for-loss-in-pipeline-split")
    ) / pp
    if rank_layers % each:
        raise BadInput(
            f"{rank_layers:g} layers of a pipeline rank are not divisible by --{given[0]} {each}; use "
            f"{_listed(int(rank_layers))}",
            pointer=f"/{given[0]}",
        )
    return int(rank_layers // each)


def _listed(layers: int) -> str:
    """`1, 2 or 23`: the numbers that divide so many layers."""
    *head, last = (str(d) for d in divisors(layers))
    return f"{', '.join(head)} or {last}" if head else last


def _uneven_ends(num_layers: int, pp: int, chunks: int, first: int, last: int) -> tuple[int, ...]:
    """First and last ranks as stated, the others share the rest (core transformer_block.get_num_layers_to_build)."""
    fixed = [size for size in (first, last) if size]
    middle = pp - len(fixed)
    rest = num_layers - sum(fixed)
    if rest < 0 or (middle == 0 and rest) or (middle and rest % middle):
        raise BadInput(
            f"{rest} layers are left for {middle} middle pipeline ranks, which does not go; change "
            "--decoder-first-pipeline-num-layers or --decoder-last-pipeline-num-layers"
        )
    ranks = [
        first or rest // middle,
        *([rest // middle] * (pp - 2) if middle else []),
        last or rest // middle,
    ]
    if any(size % chunks for size in ranks):
        raise BadInput(f"pipeline ranks of {ranks} layers are not divisible by {chunks} virtual stages each")
    return _filled(tuple(size // chunks for _ in range(chunks) for size in ranks), lone_ends=False)


def _repeated(match: re.Match[str]) -> str:
    """What a layout repeats, written out."""
    length = len(match[1]) * int(match[2][:9])
    if length > MOST_CHARACTERS:
        raise _too_long(length)
    return match[1] * int(match[2])


def _too_long(length: int) -> BadInput:
    return BadInput(
        f"--pipeline-model-parallel-layout comes to {length:,} letters; name each layer once",
        pointer="/pipeline-model-parallel-layout",
    )


def predictions_stage(arguments: Arguments) -> int | None:
    """The virtual stage before the loss's in which a layout places prediction layers; None where it places none there.

    Raises BadInput where they stand in several stages or before a layer (pipeline_parallel_layer_layout.py).
    """
    layout = arguments.text("pipeline-model-parallel-layout")
    parts = layout_parts(layout)
    holders = [index for index, part in enumerate(parts) if "m" in part]
    if len(holders) > 1 or (holders and "t" in "".join(parts[holders[0] + 1 :])):
        raise BadInput(
            f"--pipeline-model-parallel-layout {layout:.80} has prediction layers (m) in virtual stages "
            f"{', '.join(map(str, holders))} of {len(parts)}; all of them stand in one, behind the last layer",
            pointer="/pipeline-model-parallel-layout",
        )
    return holders[0] if holders and holders[0] < len(parts) - 1 else None


def layout_stages(layout: str, num_layers: int) -> tuple[int, ...]:
    """Blocks of every virtual stage of a layout such as `Et*3|(tt|)*6L` (E embedding, t layer, L loss)."""
    stages = tuple(part.count("t") for part in layout_parts(layout))
    if sum(stages) != num_layers:
        raise BadInput(
            f"--pipeline-model-parallel-layout names {sum(stages)} layers, --num-layers is {num_layers}; "
            "make them equal"
        )
    return stages


def layout_parts(layout: str) -> list[str]:
    """The letters of every virtual stage of a layout, written out."""
    text = layout.replace(",", "").replace(" ", "")
    for pattern in (_GROUP, _REPEAT):
        while pattern.search(text):
            text = pattern.sub(_repeated, text)
            if len(text) > MOST_CHARACTERS:
                raise _too_long(len(text))
    if not _LAYOUT.fullmatch(text):
        raise BadInput(
            f"--pipeline-model-parallel-layout {layout:.80} is not known; write for example Et*3|(tt|)*6L"
        )
    return text.split("|")


def _recompute(arguments: Arguments, num_layers: int, stages: tuple[int, ...]) -> str:
    """Recompute in the contract's words."""
    granularity = arguments.text(
        "recompute-granularity", "selective" if arguments.flag("recompute-activations") else ""
    )
    if not granularity:
        return "full" if arguments.flag("checkpoint-activations") else "none"  # the switch before core 0.2
    if granularity == "selective":
        modules = arguments.text("recompute-modules", "core_attn").strip("[]").replace(",", " ").split()
        return "selective:" + "+".join(modules)
    if granularity != "full":
        raise BadInput(f"--recompute-granularity {granularity:.40} is not known; use full or selective")
    method = arguments.text("recompute-method")
    if method == "uniform":
        # Groups of several layers keep fewer inputs, which is less than one input a layer that is counted here.
        return "full"
    if method == "block":
        layers, most = arguments.whole("recompute-num-layers"), max(stages)
        if layers > num_layers:
            raise BadInput(
                f"--recompute-num-layers {layers} is more than the {num_layers} layers there are; use 1 to {most}, "
                "the layers of a stage",
                pointer="/recompute-num-layers",
            )
        return f"full:{layers}"
    raise BadInput('--recompute-granularity full needs --recompute-method "uniform" or "block"')
