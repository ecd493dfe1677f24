"""Whether a number moved because the configuration did or because the planner did.

Every evaluation carries its configuration and what made it; two evaluations are compared key by key.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from cost_models.profiles import profiles_sha256
from planner.answers import Prediction
from planner.situation import Situation
from planner.version import planner_version

STAMP_KEYS: Final = ("planner_version", "profiles_sha256", "engine_versions")
MAX_NAMED: Final = 4


@dataclass(frozen=True, slots=True)
class Origin:
    """Configuration (flat keys to values) and stamp of one evaluation; empty where it does not say."""

    configuration: Mapping[str, object]
    stamp: Mapping[str, object]


def stamp(situation: Situation) -> dict[str, object]:
    """What a prediction depends on beside the configuration."""
    return {
        "planner_version": planner_version(),
        "profiles_sha256": profiles_sha256(),
        "engine_versions": {situation.engine.name: situation.engine.version},
    }


def configuration(situation: Situation, prediction: Prediction) -> dict[str, object]:
    """What a user can change: model, cluster, job and strategy, by name and number."""
    return {
        "model": {"name": situation.model.name, "parameters": prediction.parameters},
        "cluster": {"name": situation.cluster.name, "devices": situation.cluster.num_devices},
        "job": situation.job_request.model_dump(mode="json"),
        "strategy": prediction.strategy.to_json(),
    }


def origin_of(situation: Situation, prediction: Prediction) -> Origin:
    """Where a fresh prediction comes from."""
    return Origin(dict(_flat(configuration(situation, prediction))), stamp(situation))


def origin_of_baseline(baseline: Mapping[str, Any], best: Mapping[str, Any]) -> Origin:
    """Where a stored prediction comes from: a plan file, or the JSON of evaluate, check or plan."""
    found = baseline.get("configuration") or _configuration_of_plan(baseline, best)
    made = baseline.get("made_with")
    known = dict(_flat(found)) if isinstance(found, Mapping) else {}
    return Origin(known, made if isinstance(made, Mapping) else {})


def cause_of_change(before: Origin, now: Origin) -> str:
    """`configuration (…)`, `planner (…)`, both, or that the baseline does not say."""
    common = [key for key in now.configuration if key in before.configuration]
    changed = [key for key in common if before.configuration[key] != now.configuration[key]]
    newer = [key for key in STAMP_KEYS if before.stamp and before.stamp.get(key) != now.stamp.get(key)]
    causes = []
    if changed:
        named = [f"{key} {_word(before, key)} -> {_word(now, key)}" for key in changed[:MAX_NAMED]]
        more = f" and {len(changed) - MAX_NAMED} more" if len(changed) > MAX_NAMED else ""
        causes.append(f"configuration ({', '.join(named)}{more})")
    if newer:
        causes.append(f"planner ({', '.join(newer)})")
    if causes:
        return " and ".join(causes)
    return "unknown (the baseline does not name its configuration and planner version)"


def _configuration_of_plan(document: Mapping[str, Any], best: Mapping[str, Any]) -> object:
    """The configuration of a plan file, or what little the bare JSON of a prediction tells."""
    strategy, model = best.get("strategy"), best.get("model")
    request = document.get("request")
    job = request.get("job") if isinstance(request, Mapping) else None
    counted = (
        {"parameters": model["parameters"]} if isinstance(model, Mapping) and "parameters" in model else None
    )
    found = {"model": counted, "job": job, "strategy": strategy}
    return {key: value for key, value in found.items() if value is not None}


def _flat(values: object, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Nested mappings as dotted keys."""
    if not isinstance(values, Mapping):
        yield prefix, values
        return
    for key, value in values.items():
        yield from _flat(value, f"{prefix}.{key}" if prefix else str(key))


def _word(origin: Origin, key: str) -> str:
    return str(origin.configuration[key])[:40]
