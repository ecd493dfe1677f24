"""What Megatron-LM and Transformer Engine refuse beside the common rules: key/value heads, plain sends, fp8 shapes."""

import numpy as np

from cost_models.engines.rules import Facts, Rule, divides, fixed, nearest_values
from cost_models.errors import InvalidJob
from cost_models.mesh import Bool, Int, MeshBatch
from cost_models.module_offload import modules_of
from cost_models.specs.job import Job, Precision
from cost_models.specs.model import ModelSpec
from cost_models.specs.offload import parse_act_offload
from cost_models.specs.strategy import Strategy, divisors

FP8_MULTIPLE = 16
"""Rows and columns of a product in fp8 are multiples of it (Transformer Engine's assert_dim_for_fp8_exec)."""

MX_BLOCK = 32
"""Elements of a block of mxfp8 that share a scale (OCP Microscaling 1.0)."""

ARGUMENTS = "megatron/training/arguments.py"
LAYOUT = "megatron/core/transformer/pipeline_parallel_layer_layout.py"
TRANSFORMER_ENGINE = "transformer_engine/pytorch/utils.py"


def kv_divides() -> Rule:
    """Before core 0.16 query groups must be a multiple of tp."""
    source = "megatron-core before 0.16: num_query_groups must be a multiple of tensor_model_parallel_size"
    return divides("kv_heads_tp", "tp", "num_query_groups (kv heads)", lambda f: f.kv_heads, source)


def kv_replication() -> Rule:
    """From core 0.16: query groups must be a multiple or a divisor of tp; below tp ranks hold copies."""

    def broken(facts: Facts, meshes: MeshBatch) -> Bool:
        bad = np.zeros(meshes.size, dtype=bool)
        for heads in facts.kv_heads:
            bad |= (heads % meshes.tp != 0) & (meshes.tp % heads != 0)
        return bad

    def values(facts: Facts) -> tuple[int, ...]:
        most = max(facts.heads, default=facts.cluster.num_devices)
        return tuple(
            t for t in range(1, most + 1) if all(heads % t == 0 or t % heads == 0 for heads in facts.kv_heads)
        )

    def sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
        tp = mesh["tp"]
        heads = next(h for h in facts.kv_heads if h % tp and tp % h)
        detail = f"num_query_groups {heads} is neither a multiple nor a divisor of tp {tp}"
        return detail, nearest_values("tp", values(facts), tp)

    return Rule("kv_heads_tp", "megatron-core 0.16 transformer_config.py", broken, sentence, "tp", values)


def plain_sends() -> Rule:
    """Without overlapped sends a pair of ranks cannot tell interleaved sends forward from those backward."""
    return fixed(
        "megatron_interleaved_sends",
        f"{ARGUMENTS}: interleaving without overlap_p2p_comm needs more than two stages",
        lambda facts, meshes: (meshes.vpp > 1) & (meshes.pp == 2),
        "pp {pp} with vpp {vpp} and engine.overlap_p2p=false",
        ("engine.overlap_p2p=true", "pp 4", "vpp 1"),
    )


def replica_rules() -> tuple[Rule, ...]:
    """Several instances of the distributed optimizer: it is on, and they divide the experts' data-parallel ranks."""
    source = "megatron/core/parallel_state.py: num_distributed_optimizer_instances"

    def uneven(facts: Facts, meshes: MeshBatch) -> Bool:
        whole = meshes.dp % meshes.dp_replicate == 0  # else it is another rule's
        split = (meshes.dp_replicate > 1) & (meshes.expert_ranks % meshes.dp_replicate != 0)
        bad: Bool = split & whole & facts.model.is_moe
        return bad

    def sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
        ranks = mesh["tp"] * mesh["cp"] * mesh["dp"] // (mesh["etp"] * mesh["ep"])
        detail = f"dp_replicate {mesh['dp_replicate']} does not divide the {ranks} data-parallel ranks of the experts"
        return detail, nearest_values("dp_replicate", divisors(ranks), mesh["dp_replicate"])

    return (
        fixed(
            "megatron_replicas",
            source,
            lambda facts, meshes: (meshes.dp_replicate > 1) & (meshes.zero == 0),
            "dp_replicate {dp_replicate} with zero {zero} needs the distributed optimizer",
            ("zero 1", "dp_replicate 1"),
        ),
        Rule("megatron_expert_replicas", source, uneven, sentence),
    )


def whole_encoder_decoder() -> Rule:
    """A pipeline of an encoder and a decoder has one chunk a rank."""
    return fixed(
        "megatron_encoder_decoder",
        "megatron/core/pipeline_parallel/schedules.py: no interleaving with an encoder and decoder model",
        lambda facts, meshes: (
            (meshes.vpp > 1) & any(s.length == "decoder_seq_len" for s in facts.model.stacks)
        ),
        "vpp {vpp} for a model of an encoder and a decoder",
        ("vpp 1",),
    )


def shards_precision_aware(asked: bool) -> Rule:
    """The precision-aware optimizer, which narrow states and offloaded ones need, is the distributed one's."""
    return fixed(
        "megatron_precision_aware",
        "megatron/core/optimizer/optimizer_config.py: use_precision_aware_optimizer",
        lambda facts, meshes: (meshes.zero == 0) & (asked or meshes.key.offload.optimizer > 0.0),
        "narrow or offloaded optimizer states with zero {zero} need --use-precision-aware-optimizer, which the "
        "distributed optimizer alone has",
        ("zero 1", "fp32 states and offload=none"),
    )


def offloads_layers() -> tuple[Rule, ...]:
    """Activations of whole layers are offloaded or recomputed, not both, and in no pipeline."""
    source = (
        "megatron/core/transformer/transformer_config.py: cpu_offloading with pipeline_model_parallel_size"
    )
    in_a_pipeline = fixed(
        "act_offload_pp",
        source,
        lambda facts, meshes: (meshes.pp > 1) & (meshes.key.activations.kind == "blocks"),
        "act_offload of whole layers with pp {pp}",
        ("pp 1", "act_offload=modules:core_attn+attn_proj, of single modules", "act_offload=none"),
    )
    beside_recompute = fixed(
        "megatron_act_offload",
        "megatron/core/transformer/transformer_config.py: cpu_offloading with recompute_granularity",
        lambda facts, meshes: np.full(
            meshes.size, meshes.key.activations.kind == "blocks" and bool(meshes.key.scopes)
        ),
        "act_offload of blocks with selective recompute, which --cpu-offloading does not go with",
        ("recompute=none", "act_offload=none"),
    )
    return in_a_pipeline, beside_recompute


def offloaded_modules_rules() -> tuple[Rule, ...]:
    """Single modules on the host: known, of this model, and none whose tensors another one keeps or makes again."""
    source = "megatron/core/transformer/transformer_config.py: offload_modules"

    def unknown(facts: Facts, meshes: MeshBatch) -> Bool:
        given = set(meshes.key.activations.modules)
        return np.full(meshes.size, not given <= set(modules_of(facts.model)))

    def sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
        known = modules_of(facts.model)
        given = [name for name in parse_act_offload(strategy.act_offload).modules if name not in known]
        detail = f"{facts.model.name} has no module {', '.join(given):.80} that goes to the host by itself"
        return detail, (f"one of {', '.join(known)}",) if known else ("act_offload=none",)

    def projects_alone(facts: Facts, meshes: MeshBatch) -> Bool:
        given = meshes.key.activations.modules
        return np.full(meshes.size, "attn_proj" in given and "core_attn" not in given)

    def inside_recomputed(facts: Facts, meshes: MeshBatch) -> Bool:
        inside = {"expert_fc1", "moe_act"} & set(meshes.key.activations.modules)
        return np.full(meshes.size, bool(inside) and "moe" in meshes.key.scopes)

    return (
        Rule("act_offload_module", source, unknown, sentence),
        fixed(
            "act_offload_attn_proj",
            source,
            projects_alone,
            "act_offload of attn_proj without core_attn, whose backward needs the same tensor",
            ("act_offload=modules:attn_proj+core_attn",),
        ),
        fixed(
            "act_offload_moe",
            source,
            inside_recomputed,
            "act_offload of expert_fc1 or moe_act inside the scope moe, which is recomputed as a whole",
            ("recompute without moe", "act_offload of other modules"),
        ),
    )


def predictions_in_stages() -> Rule:
    """Prediction layers behind the decoder's, on the last chunk of a pipeline rank that is not the first."""
    return fixed(
        "megatron_mtp_stages",
        LAYOUT,
        lambda facts, meshes: meshes.pp < 3,
        "engine.mtp_in_stages with pp {pp}: prediction layers stand with the loss or between it and the first rank",
        ("pp 3 or more", "engine.mtp_in_stages=false"),
    )


def check_predictions(model: ModelSpec, job: Job, version: str, *, since: bool) -> None:
    """Raises InvalidJob where there is no prediction layer to place, or none may leave the loss's stage."""
    why = ""
    if not since:
        why = (
            f"megatron@{version} keeps prediction layers in the last stage together with the loss ({LAYOUT})"
        )
    elif not model.num_predictions:
        why = f"{model.name} has no multi-token-prediction layers"
    elif not job.options.train_mtp:
        why = "no prediction layer is trained; set job.train_mtp=true"
    if why:
        raise InvalidJob(
            f"engine.mtp_in_stages=true, but {why}; leave it out",
            pointer="/job/options/engine.mtp_in_stages",
        )


def fp8_rules() -> tuple[Rule, ...]:
    """Shapes of products that Transformer Engine takes in narrow types."""
    return (
        Rule("fp8_tokens", TRANSFORMER_ENGINE, _odd_tokens, _tokens_sentence),
        Rule("fp8_widths", TRANSFORMER_ENGINE, _odd_widths, _widths_sentence),
    )


def _multiple(facts: Facts) -> int:
    """What rows and columns must be multiples of; 1 in wide types."""
    multiples = {Precision.FP8: FP8_MULTIPLE, Precision.MXFP8: MX_BLOCK, Precision.NVFP4: MX_BLOCK}
    return multiples.get(facts.job.precision, 1)


def _tokens(facts: Facts, meshes: MeshBatch) -> Int:
    """Tokens of a product on a rank, of its shortest stack."""
    lengths = {
        facts.job.length_of(stack.length) for stack in facts.model.stacks if stack.length != "image_size"
    }
    tokens: Int = meshes.mbs * (min(lengths, default=0) // meshes.cp)
    return tokens


def _odd_tokens(facts: Facts, meshes: MeshBatch) -> Bool:
    bad: Bool = _tokens(facts, meshes) % _multiple(facts) != 0
    return bad


def _tokens_sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
    multiple, cp, mbs = _multiple(facts), mesh["cp"], mesh["mbs"]
    length = facts.job.seq_len
    step = multiple * cp
    nearest = tuple(f"sequence length {n}" for n in (length // step * step, -(-length // step) * step) if n)
    return (
        f"{mbs * (length // cp)} tokens a rank (mbs {mbs} x sequence length {length} / cp {cp}) in "
        f"{facts.job.precision.value}: products take multiples of {multiple}",
        nearest,
    )


def _widths(facts: Facts) -> tuple[int, ...]:
    return (facts.model.hidden_size, *facts.widths)


def _odd_widths(facts: Facts, meshes: MeshBatch) -> Bool:
    multiple = _multiple(facts)
    bad = np.zeros(meshes.size, dtype=bool)
    for width in _widths(facts):
        # A width that tp does not divide is another rule's.
        bad |= (width % meshes.tp == 0) & (width // meshes.tp % multiple != 0)
    return bad


def _widths_sentence(facts: Facts, mesh: dict[str, int], strategy: Strategy) -> tuple[str, tuple[str, ...]]:
    multiple, tp = _multiple(facts), mesh["tp"]
    width = next(w for w in _widths(facts) if w % tp == 0 and w // tp % multiple)
    legal = tuple(t for t in range(1, tp) if all(w % (t * multiple) == 0 for w in _widths(facts)))
    precision = facts.job.precision.value
    return (
        f"width {width} / tp {tp} = {width // tp} in {precision}: products take multiples of {multiple}",
        (*nearest_values("tp", legal, tp), "precision bf16"),
    )
