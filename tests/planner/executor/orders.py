"""Small orders to run in tests: a tiny Llama or GPT-2 on the cpu preset."""

from collections.abc import Mapping
from typing import Any

from cost_models.readers import read_model
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import parse_strategy
from planner.executor.request import RunOptions, RunOrder, order_of
from planner.request import PresetCluster
from planner.situation import resolve_cluster, situate

LLAMA: Mapping[str, object] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 128,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
MIXTRAL: Mapping[str, object] = {
    "model_type": "mixtral",
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
}
# Dense before routed blocks, latent attention, sigmoid scores in groups with a correction, a shared expert.
DEEPSEEK: Mapping[str, object] = {
    "model_type": "deepseek_v3",
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "max_position_embeddings": 64,
    "n_routed_experts": 8,
    "n_group": 2,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "num_nextn_predict_layers": 0,
}


def tiny_order(
    strategy: str = "",
    *,
    devices: int = 1,
    engine: str = "torch",
    cluster: str = "cpu",
    config: Mapping[str, object] = LLAMA,
    job: Mapping[str, Any] | None = None,
    **options: Any,
) -> RunOrder:
    """An order over `devices` processes: fp32, sequence 16, global batch 8 unless `job` says otherwise."""
    stated: dict[str, Any] = {"seq_len": 16, "global_batch": 8, "precision": "fp32", "engine": engine}
    request = JobRequest.model_validate(stated | dict(job or {}))
    model = read_model(dict(config), name=str(config["model_type"]))
    spec = resolve_cluster(PresetCluster(name=cluster, devices=devices))
    return order_of(situate(model, spec, request), parse_strategy(strategy), RunOptions(**options))
