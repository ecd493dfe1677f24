"""Sixty-four GPUs and 70B: the plan, its proof, why not the layout of last time, and the script that starts it."""

from pathlib import Path

from planner import evaluate, plan
from planner.formats.export import PlannedRun
from planner.formats.registry import write_settings
from planner.library import situation_of

MODEL, CLUSTER = "llama-3.1-70b", "dgx-h100:64"
JOB = {"seq_len": 8192, "global_batch": 512, "engine": "megatron"}


def main() -> None:
    """Plan, compare with a layout found by hand, export."""
    result = plan(MODEL, CLUSTER, **JOB)
    best = result.best
    print(f"{result.status}, gap {result.certificate.gap:.2%}: {best.strategy.mesh_text()}")
    print(
        f"{best.step_s:.1f} s a step (90 %: {best.step_s_low:.1f} to {best.step_s_high:.1f}), MFU {best.mfu:.1%}"
    )
    ours = evaluate(MODEL, CLUSTER, "tp=8,pp=4,recompute=selective", **JOB)
    print(f"tp=8, pp=4 by hand: {ours.step_s:.1f} s, {ours.step_s / best.step_s - 1:+.1%}")
    for cause, seconds in ours.breakdown_s.items():
        more = seconds - best.breakdown_s[cause]
        if abs(more) > 0.005 * best.step_s:
            print(f"  {cause:18} {more:+.2f} s")
    export = write_settings(PlannedRun(situation_of(MODEL, CLUSTER, JOB), best.strategy), "megatron")
    written = export.write(Path("build/examples/seventy_b_on_64"))
    print(f"wrote {', '.join(str(path) for path in written)}; losses: {list(export.losses) or 'none'}")


if __name__ == "__main__":
    main()
