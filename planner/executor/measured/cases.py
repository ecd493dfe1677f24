"""Which plans are run and held against their predictions, on a CPU with gloo and on one GPU."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from cost_models.profiles import model_config
from cost_models.readers import read_model
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import parse_strategy
from planner.executor.profiled.order import ProfiledModel
from planner.executor.request import RunOptions, RunOrder, order_of
from planner.plan_file import resolved_request
from planner.request import PresetCluster, SearchRequest
from planner.situation import resolve_cluster, situate

CPU_MODEL: Final[Mapping[str, object]] = {
    "model_type": "llama",
    "hidden_size": 512,
    "num_hidden_layers": 6,
    "intermediate_size": 1536,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 8192,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}
"""28 million parameters: large beside what a process holds anyway, small enough for a few cores."""

PATIENCE_S: Final = 600.0
"""Ranks wait this long for each other: a loaded machine is slow, not broken."""
CPU_SEQ_LEN: Final = 256
CPU_LAYOUTS: Final[tuple[tuple[str, int, str, int], ...]] = (
    ("mbs=2", 1, "torch", 4),
    ("mbs=4,recompute=full", 1, "torch", 8),
    ("mbs=4,recompute=selective:mlp", 1, "torch", 8),
    ("dp=2,mbs=2", 2, "ddp", 8),
    ("dp=2,mbs=2,zero=1", 2, "torch", 8),
    ("dp=2,mbs=4,zero=0,recompute=full:3", 2, "torch", 16),
    ("dp=2,mbs=2,zero=2", 2, "fsdp2", 8),
    ("dp=2,mbs=2,zero=3", 2, "fsdp2", 8),
    ("dp=4,mbs=1,zero=3,recompute=full", 4, "fsdp2", 8),
    ("tp=2,mbs=2", 2, "torch", 4),
    ("tp=4,mbs=4", 4, "torch", 8),
    ("pp=2,mbs=2,stages=4+2", 2, "torch", 8),
    ("pp=2,mbs=1,schedule=gpipe,stages=3+3", 2, "torch", 4),
    ("pp=2,vpp=2,mbs=1,schedule=zb-v,stages=2+1+2+1", 2, "torch", 4),
    ("pp=2,dp=2,mbs=1,zero=1,stages=3+3", 4, "torch", 8),
    ("pp=2,tp=2,mbs=2,stages=3+3,recompute=full", 4, "torch", 8),
)
"""Strategy, processes, engine, global batch: two micro-batches a rank, four in a pipeline."""

LLAMA_1B: Final = "llama-3.2-1b"
LLAMA_8B: Final = "llama-3.1-8b"
EXPERTS: Final = "olmoe-1b-7b"
LATENT: Final = "deepseek-v2-lite"
CUT_LAYERS: Final[Mapping[str, int]] = {LLAMA_8B: 8, EXPERTS: 4, LATENT: 4}
"""Blocks that larger models are cut to, so that fp32 states of AdamW fit beside activations on one GPU of 80 GB."""

GPU_LAYOUTS: Final[tuple[tuple[str, str, int], ...]] = (
    (LLAMA_1B, "mbs=1", 2048),
    (LLAMA_1B, "mbs=2", 2048),
    (LLAMA_1B, "mbs=4", 2048),
    (LLAMA_1B, "mbs=4,recompute=full", 2048),
    (LLAMA_1B, "mbs=4,recompute=full:8", 2048),
    (LLAMA_1B, "mbs=4,recompute=selective:mlp", 2048),
    (LLAMA_1B, "mbs=1,recompute=full", 8192),
    (LLAMA_8B, "mbs=1", 2048),
    (LLAMA_8B, "mbs=2,recompute=full", 2048),
    (LLAMA_8B, "mbs=1,recompute=full:4", 4096),
    (EXPERTS, "mbs=1", 2048),
    (EXPERTS, "mbs=2,recompute=full", 2048),
    (LATENT, "mbs=1", 2048),
    (LATENT, "mbs=2,recompute=full", 2048),
)
GPU_BATCH: Final = 8
TINY: Final[Mapping[str, object]] = {
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "vocab_size": 512,
}
TINY_EXPERTS: Final[Mapping[str, object]] = {"num_experts": 4, "num_experts_per_tok": 2}
TINY_LATENT: Final[Mapping[str, object]] = {
    "head_dim": None,
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
}
TINY_OF: Final[Mapping[str, Mapping[str, object]]] = {EXPERTS: TINY_EXPERTS, LATENT: TINY_LATENT}
TINY_SEQ_LEN: Final = 64
TINY_LAYERS: Final = 8


@dataclass(frozen=True, slots=True)
class Case:
    """One plan to be run: a name for people and the order."""

    name: str
    order: RunOrder


@dataclass(frozen=True, slots=True)
class Question:
    """A case before it is resolved."""

    config: Mapping[str, object]
    model_name: str
    cluster: ClusterSpec
    strategy: str
    job: Mapping[str, Any] = field(default_factory=dict)

    def case(self, options: RunOptions) -> Case:
        """Resolve it; raises BadInput where the engine refuses it."""
        model = read_model(dict(self.config), name=self.model_name)
        situation = situate(model, self.cluster, JobRequest.model_validate(dict(self.job)))
        name = f"{self.model_name} {situation.job.engine} {self.strategy}"
        return Case(name, order_of(situation, parse_strategy(self.strategy), options))


def cpu_cases(steps: int, *, tiny: bool = False) -> list[Case]:
    """Layouts of one to four gloo processes."""
    config = {**CPU_MODEL, **(TINY if tiny else {})}
    seq_len = TINY_SEQ_LEN if tiny else CPU_SEQ_LEN
    cases = []
    for strategy, devices, engine, batch in CPU_LAYOUTS:
        job = {"seq_len": seq_len, "global_batch": batch, "precision": "fp32", "engine": engine}
        cluster = resolve_cluster(PresetCluster(name="cpu", devices=devices))
        cases.append(
            Question(config, "llama", cluster, strategy, job).case(
                RunOptions(steps=steps, timeout_s=PATIENCE_S)
            )
        )
    return cases


def gpu_cases(steps: int, cluster: str, *, tiny: bool = False) -> list[Case]:
    """Layouts of one GPU: recompute and micro-batches of a 1B model, and of an 8B model, a mixture of experts and one
    with latent attention, cut to fit."""
    spec = resolve_cluster(PresetCluster(name="cpu" if tiny else cluster, devices=1))
    options = RunOptions(steps=steps, timeout_s=PATIENCE_S)
    return [_gpu_question(spec, layout, tiny=tiny).case(options) for layout in GPU_LAYOUTS]


def _gpu_question(spec: ClusterSpec, layout: tuple[str, str, int], *, tiny: bool) -> Question:
    name, strategy, seq_len = layout
    config, shown = dict(model_config(name)), f"{name} s{seq_len}"
    if name in CUT_LAYERS:
        config["num_hidden_layers"] = CUT_LAYERS[name]
        shown += f" cut to {CUT_LAYERS[name]} layers"
    if tiny:
        kept = CUT_LAYERS.get(name, TINY_LAYERS)
        config |= {**TINY, "num_hidden_layers": kept, **TINY_OF.get(name, {})}
    job = {
        "seq_len": TINY_SEQ_LEN if tiny else seq_len,
        "global_batch": GPU_BATCH,
        "precision": "fp32" if tiny else "bf16",
        "engine": "torch",
    }
    return Question(config, shown, spec, strategy, job)


def profiled_models(cases: Sequence[Case]) -> tuple[ProfiledModel, ...]:
    """The models of cases of one process, at the positions and micro-batches that they run with."""
    found: dict[tuple[str, int], tuple[RunOrder, set[int]]] = {}
    for case in cases:
        situation = case.order.situation
        key = (situation.model.name, situation.job.seq_len)
        found.setdefault(key, (case.order, set()))[1].add(case.order.strategy.mbs)
    return tuple(
        ProfiledModel(
            request=resolved_request(order.situation, SearchRequest()), micro_batches=tuple(sorted(sizes))
        )
        for order, sizes in found.values()
    )
