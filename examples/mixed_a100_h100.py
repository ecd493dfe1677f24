"""Old A100 nodes beside new H100 ones: together, or the new ones alone?"""

from planner import plan

JOB = {"seq_len": 4096, "global_batch": 256, "engine": "megatron"}
NEW = {"name": "new", "device": "h100-sxm-80gb", "nodes": 2, "devices_per_node": 8}
OLD = {"name": "old", "device": "a100-sxm-80gb", "nodes": 2, "devices_per_node": 8}
NVLINK = {"name": "nvlink", "bytes_per_s": 300e9, "latency_s": 2e-6}
NETWORK = {"name": "infiniband", "bytes_per_s": 25e9, "latency_s": 4e-6}


def main() -> None:
    """Plan for both groups and for each alone."""
    for title, groups in (("H100 alone", [NEW]), ("A100 alone", [OLD]), ("together", [NEW, OLD])):
        best = plan(
            "llama-3.1-8b", {"name": "ours", "groups": groups, "tiers": [NVLINK, NETWORK]}, **JOB
        ).best
        where = ", ".join(best.strategy.stage_groups) or "one group"
        print(f"{title:12} {best.step_s:.2f} s  {best.strategy.mesh_text()}  stages on: {where}")


if __name__ == "__main__":
    main()
