"""Experts of a checkpoint go to other ranks than had them: each is kept for itself, wherever it was."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.planner.executor.checkpoint.resharding import Layout, difference

LIMIT = 1e-5
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
# A correction of the router's scores, which is no parameter, moves by the load of every step.
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
BIAS = {"moe_bias_rate": 0.01}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param(
            Layout("dp=2,ep=2,zero=1", 2, config=MIXTRAL), Layout("", 1, config=MIXTRAL), id="ep 2 to 1"
        ),
        pytest.param(
            Layout("dp=2,ep=2,zero=1", 2, config=MIXTRAL),
            Layout("dp=4,ep=4,zero=3", 4, config=MIXTRAL),
            marks=pytest.mark.matrix,
            id="ep 2 to 4",
        ),
        pytest.param(
            Layout("dp=4,ep=2,zero=3", 4, config=MIXTRAL),
            Layout("pp=2,dp=2,ep=2,zero=1,stages=1+1", 4, config=MIXTRAL),
            marks=pytest.mark.matrix,
            id="experts' data parallel to pipeline",
        ),
        pytest.param(
            Layout("tp=2,ep=2,mbs=4", 2, config=DEEPSEEK, options=BIAS),
            Layout("dp=2,etp=2,zero=2,mbs=4", 2, config=DEEPSEEK, options=BIAS),
            marks=pytest.mark.matrix,
            id="corrected scores",
        ),
        pytest.param(
            Layout("cp=2,dp=2,zero=1", 4),
            Layout("tp=2", 2),
            marks=pytest.mark.matrix,
            id="context parallel to tensor parallel",
        ),
    ],
)
def test_losses_go_on(first: Layout, second: Layout, tmp_path: Path) -> None:
    assert difference(first, second, tmp_path) <= LIMIT
