"""A row of a published-runs file: Llama-3-8B on eight A100, all knobs stated."""

ROW = {
    "model_json": "models/llama3-8b.json",
    "kind": "dense",
    "seq_len": "4096",
    "gpu": "A100-SXM-80GB",
    "n_gpus": "8",
    "gpus_per_node": "8",
    "framework": "Megatron-LM",
    "precision": "bf16",
    "tp": "2",
    "dp": "4",
    "sequence_parallel": "true",
    "recompute": "none",
    "micro_batch": "1",
    "zero_stage": "1",
}
