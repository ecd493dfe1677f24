"""One node of eight GPUs and a model of 7B: what fits, what is fastest, and what the next GPU would bring."""

from planner import evaluate, plan

MODEL, JOB = "llama-2-7b", {"seq_len": 4096, "global_batch": 64, "engine": "fsdp2"}


def main() -> None:
    """Compare the layouts that one would try, then ask for the best."""
    for strategy in ("zero=2", "zero=3", "zero=3,recompute=full", "zero=3,recompute=full,mbs=4"):
        found = evaluate(MODEL, "dgx-a100:8", strategy, **JOB)
        held = found.memory.peak_allocated_bytes / 2**30
        print(f"{strategy:30} {found.verdict:12} {held:6.1f} GiB  {found.step_s:.2f} s")
    best = plan(MODEL, "dgx-a100:8", **JOB).best
    print(f"best: {best.strategy.mesh_text()}")
    print(
        f"      {best.step_s:.2f} s a step, {best.tokens_per_s_per_device:.0f} tokens/s a GPU, MFU {best.mfu:.1%}"
    )
    for devices in (4, 8, 16):
        found = plan(MODEL, f"dgx-a100:{devices}", **JOB).best
        print(f"{devices:3} GPUs: {found.step_s:.2f} s" if found else f"{devices:3} GPUs: nothing fits")


if __name__ == "__main__":
    main()
