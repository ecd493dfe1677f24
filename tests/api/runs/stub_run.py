"""Stands for `planner run` in tests: writes events, logs and a report as it does, and behaves as a story says.

`good` ends well, `bad` fails with a rank, `stubborn` ignores requests to end and hides a grandchild in a session of
its own, `wait` runs until it is asked to end, the job of `unending` does not end until it is let go.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

STEP = {"event": "step", "step_s": 0.5, "tokens_per_s": 128.0, "memory_bytes": [1000.0, 2000.0], "attempt": 0}
SLEEPER = "import time; time.sleep(300)"


def main(story: str, arguments: list[str]) -> int:
    """The run."""
    files = Path(arguments[arguments.index("--log-dir") + 1])
    if "--cancel" in arguments:
        if story == "unending" and not (Path(os.environ["STUB_FOLDER"]) / "let-go").exists():
            sys.stderr.write("job 7 is still running\n")
            time.sleep(300)
        (Path(os.environ["STUB_FOLDER"]) / "job-ended").touch()
        return 0
    sys.stderr.write("said on standard error\n")
    logs = files / "logs" / "abc_" / "attempt_0" / "1"
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "stderr.log").write_text("rank 1 says\nmore\n")
    (files / "order.json").write_text(json.dumps(order_of(arguments)))
    with (files / "events.jsonl").open("a") as events:
        for step in (1, 2, 3):
            events.write(json.dumps({**STEP, "step": step, "loss": 4.0 - step}) + "\n")
        events.write('{"event": "step", "st')  # torn by a kill
    if story == "bad":
        failure = {"rank": 1, "exit_code": 9, "message": "rank 1 failed with exit code 9: no space"}
        sys.stdout.write(json.dumps({"ran": False, "failure": failure}))
        return 1
    if story in ("wait", "stubborn", "unending"):
        wait(stubborn=story != "wait")
    sys.stdout.write(json.dumps(REPORT))
    return 0


REPORT = {
    "ran": True,
    "steps": 3,
    "measured": {"step_s": 0.5, "peak_bytes": 2000.0},
    "predicted": {"step_s": 0.4, "peak_bytes": 2200.0},
    "ratio": {"step_s": 0.8, "peak_bytes": 1.1},
}


def wait(stubborn: bool) -> None:
    """A child in a session of its own, which has lost its parent, and this process, until asked to end."""
    subprocess.Popen([sys.executable, "-S", "-c", SLEEPER], start_new_session=True)
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        program = (
            f"import subprocess, sys; subprocess.Popen([sys.executable, '-S', '-c', {SLEEPER!r}], env={{}})"
        )
        subprocess.run([sys.executable, "-S", "-c", program], check=True, env={}, start_new_session=True)
    (Path(os.environ["STUB_FOLDER"]) / "waits").touch()
    time.sleep(300)


def order_of(arguments: list[str]) -> dict[str, object]:
    """The order of a plan file, as the executor writes it."""
    plan = json.loads(Path(arguments[1]).read_text())
    return {"request": plan["request"], "strategy": plan["result"]["best"]["strategy"], "options": {}}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
