"""The data behind the views of one strategy: prediction, timeline, device grid and facts, as plain values.

The page asks for it over HTTP, the report carries it; both draw with the same modules.
"""

from collections.abc import Mapping
from typing import Any, Final

from cost_models.specs.strategy import Strategy, StrategyRequest
from planner.answers import finite
from planner.evaluation import Context, complete_legal, predict
from planner.explain.facts import layout_facts
from planner.report.grid import device_grid
from planner.report.timeline import MAX_OPERATIONS, timeline
from planner.simulate.simulation import simulation_of
from planner.situation import Situation

VIEW_KEYS: Final = ("evaluation", "timeline", "grid", "facts", "question")


def view_of(
    situation: Situation, strategy: StrategyRequest | Strategy, most_operations: int = MAX_OPERATIONS
) -> dict[str, Any]:
    """Everything that is drawn of one strategy, non-finite numbers as None; raises IllegalStrategy."""
    context = Context.of(situation)
    legal = complete_legal(context, strategy)
    mesh = context.mesh_of(legal)
    prediction = predict(context, legal, mesh)
    drawn = timeline(simulation_of(mesh, legal), most_operations)
    columns = drawn.pop("columns")  # finite as they stand, and long
    found = {
        "evaluation": prediction.to_json(),
        "timeline": drawn,
        "grid": device_grid(context, mesh, legal),
        "facts": layout_facts(situation, legal).to_json(),
        "question": question_of(situation),
    }
    cleaned = finite(found)
    view: dict[str, Any] = cleaned if isinstance(cleaned, dict) else found
    view["timeline"]["columns"] = columns
    return view


def question_of(situation: Situation) -> Mapping[str, object]:
    """The model, cluster and job in the words that stand above the answer."""
    job, cluster = situation.job, situation.cluster
    counts: dict[str, int] = {}
    for index, group in enumerate(cluster.groups):
        name = cluster.device_of(index).name
        counts[name] = counts.get(name, 0) + group.num_devices
    return {
        "model": situation.model.name,
        "blocks": sum(layer.count for layer in situation.model.layers if layer.role.value == "block"),
        "cluster": cluster.name,
        "devices": cluster.num_devices,
        "device": " and ".join(counts),
        "hardware": " and ".join(f"{count:,} x {name}" for name, count in counts.items()),
        "seq_len": None if job.image_size else job.seq_len,
        "global_batch": job.global_batch,
        "precision": job.precision.value,
        "engine": f"{situation.engine.name}@{situation.engine.version}",
    }
