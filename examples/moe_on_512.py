"""A mixture of experts on 512 GPUs: expert parallel degrees, an uneven router, a capacity factor."""

from planner import evaluate, plan

MODEL, CLUSTER = "mixtral-8x22b", "dgx-h100:512"
JOB = {"seq_len": 4096, "global_batch": 2048, "engine": "megatron"}


def main() -> None:
    """What routing costs, then the plan under a router that is not even."""
    for ep in (1, 2, 4, 8):
        found = evaluate(MODEL, CLUSTER, f"pp=8,ep={ep}", **JOB)
        exchange = found.breakdown_s["ep_communication"]
        held = found.memory.peak_allocated_bytes / 2**30
        print(
            f"ep {ep}: {found.step_s:.2f} s, of it exchange {exchange:.2f} s, {held:.1f} GiB, {found.verdict}"
        )
    for title, options in (
        ("even", {}),
        ("fullest rank 1.5 x", {"job.moe_imbalance": 1.5}),
        ("the same, capacity 1.25", {"job.moe_imbalance": 1.5, "job.moe_capacity_factor": 1.25}),
    ):
        found = evaluate(MODEL, CLUSTER, "pp=8,ep=8", options=options, **JOB)
        print(f"{title:24} {found.step_s:.2f} s, {found.memory.peak_allocated_bytes / 2**30:.1f} GiB")
    result = plan(MODEL, CLUSTER, options={"job.moe_imbalance": 1.2}, max_seconds=60.0, **JOB)
    print(f"{result.status}, gap {result.certificate.gap:.1%}: {result.best.step_s:.2f} s")
    print(result.best.strategy.mesh_text())


if __name__ == "__main__":
    main()
