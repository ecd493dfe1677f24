"""How far a search is. Within an attempt bounds never worsen, whatever a worker says."""

from collections.abc import Mapping
from typing import Any


class Progress:
    """The best of everything said so far in one attempt."""

    def __init__(self) -> None:
        self.lower_bound_s: float | None = None
        self.best_step_s: float | None = None
        self.gap: float | None = None
        self.meshes_done = 0
        self.meshes_total = 0

    def update(self, said: Mapping[str, Any]) -> tuple[bool, bool]:
        """Take in a message; whether anything improved, and whether a better plan was found."""
        before = self.to_json()
        self.lower_bound_s = _better(self.lower_bound_s, said.get("lower_bound_s"), max)
        self.best_step_s = _better(self.best_step_s, said.get("best_step_s"), min)
        self.gap = _better(self.gap, said.get("gap"), min)
        self.meshes_total = max(self.meshes_total, int(said.get("meshes_total") or 0))
        self.meshes_done = max(self.meshes_done, int(said.get("meshes_done") or 0))
        after = self.to_json()
        return after != before, after["best_step_s"] != before["best_step_s"]

    def to_json(self) -> dict[str, Any]:
        """The contract's progress object."""
        return {
            "lower_bound_s": self.lower_bound_s,
            "best_step_s": self.best_step_s,
            "gap": self.gap,
            "meshes_done": self.meshes_done,
            "meshes_total": self.meshes_total,
        }


def of_result(result: Mapping[str, Any]) -> dict[str, Any]:
    """The progress that a result stands for."""
    certificate, best = result["certificate"], result["best"]
    total = certificate["meshes_total"]
    return {
        "lower_bound_s": certificate["lower_bound_s"],
        "best_step_s": best["step_s"] if best else None,
        "gap": certificate["gap"],
        "meshes_done": total - certificate["meshes_open"],
        "meshes_total": total,
    }


def _better(known: float | None, said: float | None, choose: Any) -> float | None:
    if known is None or said is None:
        return said if known is None else known
    better: float = choose(known, said)
    return better
