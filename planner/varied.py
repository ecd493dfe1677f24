"""Options that the user lets vary: one search for each combination of their values, one incumbent, one certificate.

    --vary grad_dtype=bf16,fp32 --vary moment_dtype=fp32,bf16

Each combination is a question of its own, with its own legality; the best step of the ones before is what the next
ones must beat, so most are ruled out by their bounds. Counts are summed, the lower bound is the least of all; the plan
answers the combination that won, which `changes` names.
"""

import itertools
import math
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from cost_models.errors import BadInput
from cost_models.suggest import did_you_mean
from planner.answers import Certificate, PlanResult
from planner.objectives import StepOracle
from planner.objectives.oracle import Report
from planner.request import SearchRequest
from planner.situation import Situation, changed

Scalar = bool | int | float | str

OWN: Final = ("precision", "optimizer")
"""Fields of the job; everything else that varies is one of its options."""
DTYPES: Final = ("grad_dtype", "moment_dtype", "second_moment_dtype", "master_dtype", "param_dtype")
"""Options that may be named without `engine.`."""
MOST: Final = 64
"""Combinations that one request may ask for."""
LEAST_SECONDS: Final = 0.05
STEPS_GAIN: Final = 1.02
"""A combination is searched up to this far above the best step before it: small steps from its best plan may lead below
(search/space/polish.py)."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One combination: what it changes, and the question that it makes."""

    changes: Mapping[str, object]
    situation: Situation


def varied(oracle: StepOracle) -> StepOracle:
    """The same two questions over all combinations that a search lets vary; without any, as they are."""

    def fastest(
        situation: Situation,
        search: SearchRequest,
        report: Report,
        *,
        explain: bool = True,
        within_s: float = math.inf,
    ) -> PlanResult:
        if not search.vary:
            return oracle.fastest(situation, search, report, explain=explain, within_s=within_s)
        found = _fastest(oracle, situation, search, report, within_s)
        if found.best is None and found.status == "infeasible" and explain and search.explain:
            plain = search.model_copy(update={"vary": {}})
            why = oracle.fastest(situation, plain, report, explain=True)
            return replace(found, reason=why.reason, relaxations=why.relaxations)
        return found

    def least_step_s(situation: Situation, search: SearchRequest) -> float:
        if not search.vary:
            return oracle.least_step_s(situation, search)
        plain = search.model_copy(update={"vary": {}})
        return min(oracle.least_step_s(each.situation, plain) for each in variants(situation, search.vary))

    return StepOracle(fastest, least_step_s)


def _fastest(
    oracle: StepOracle, situation: Situation, search: SearchRequest, report: Report, within_s: float
) -> PlanResult:
    """The best of all combinations, each of which must beat those before it."""
    started = time.monotonic()
    answers: list[PlanResult] = []
    best: PlanResult | None = None
    asked = variants(situation, search.vary)
    for number, variant in enumerate(asked):
        left = float(search.max_seconds) - (time.monotonic() - started)
        # What is left is shared evenly: a combination that ends early leaves its time to the others.
        own = search.model_copy(
            update={"vary": {}, "max_seconds": max(left / (len(asked) - number), LEAST_SECONDS)}
        )
        limit = within_s if best is None or best.best is None else best.best.step_s
        answer = oracle.fastest(
            variant.situation, own, report, explain=False, within_s=min(STEPS_GAIN * limit, within_s)
        )
        answers.append(answer)
        if answer.best is not None and answer.best.step_s < limit:
            best = replace(answer, changes={**answer.changes, **variant.changes})
    return _joined(answers, best, search, time.monotonic() - started)


def _joined(
    answers: list[PlanResult], best: PlanResult | None, search: SearchRequest, wall_s: float
) -> PlanResult:
    """One answer: counts summed, the least bound, the best plan."""
    parts = [answer.certificate for answer in answers]
    step_s = best.best.step_s if best is not None and best.best is not None else None
    bounds = [part.lower_bound_s for part in parts if part.lower_bound_s is not None]
    lower = min([*bounds, *([step_s] if step_s is not None else [])], default=None)
    gap = (step_s - lower) / step_s if step_s is not None and lower is not None else None
    illegal: Counter[str] = Counter()
    for part in parts:
        illegal.update(part.meshes_illegal)
    names = ("meshes_total", "meshes_out_of_memory", "meshes_bounded", "meshes_solved", "meshes_open")
    sums = {name: sum(getattr(part, name) for part in parts) for name in names}
    certificate = Certificate(
        objective="step_time",
        lower_bound_s=lower,
        gap=gap,
        meshes_illegal=dict(illegal),
        space=_space(parts, search.vary),
        wall_s=wall_s,
        **sums,
    )
    if best is None:
        status = "unknown" if any(answer.status == "unknown" for answer in answers) else "infeasible"
        reasons = [answer.reason for answer in answers if answer.reason]
        return PlanResult(status, None, (), certificate, reason=reasons[0] if reasons else "")
    status = "optimal" if gap is not None and gap <= search.gap else "feasible"
    return replace(best, status=status, certificate=certificate)


def _space(parts: list[Certificate], vary: Mapping[str, str]) -> dict[str, object]:
    """Every axis with its values in any combination, and what varies."""
    joined: dict[str, object] = {}
    for part in parts:
        for axis, values in part.space.items():
            known = joined.get(axis)
            if isinstance(known, list) and isinstance(values, list):
                joined[axis] = known + [value for value in values if value not in known]
            else:
                joined.setdefault(axis, values)
    return joined | {"vary": {key: _values(key, text) for key, text in vary.items()}}


def variants(situation: Situation, vary: Mapping[str, str]) -> list[Variant]:
    """Every combination that the engine takes; raises BadInput for a key or value that none of them can have."""
    axes = [[(key, value) for value in _values(key, text)] for key, text in vary.items()]
    number = math.prod(map(len, axes))
    if number > MOST:
        raise BadInput(f"{number} combinations vary; name at most {MOST}", pointer="/search/vary")
    found: list[Variant] = []
    taken: set[tuple[str, str]] = set()
    refused: dict[tuple[str, str], BadInput] = {}
    for pairs in itertools.product(*axes):
        names = {(key, str(value)) for key, value in pairs}
        try:
            found.append(Variant(_changes(pairs), changed(situation, _changes(pairs))))
            taken |= names
        except BadInput as error:
            refused |= dict.fromkeys(names, error)
    for name, refusal in refused.items():
        if name not in taken:
            raise refusal
    return found


def _values(key: str, text: str) -> list[Scalar]:
    """The values that a key may have, typed as on the command line."""
    known = (*OWN, *DTYPES)
    if key not in known and not key.startswith(("engine.", "job.")):
        raise BadInput(
            f"{key:.60} cannot vary; {did_you_mean(key, known)}known: {', '.join(known)}, and options such as "
            "engine.attention",
            pointer="/search/vary",
            allowed=known,
        )
    words = list(dict.fromkeys(part.strip() for part in text.split(",")))
    if not all(words):
        raise BadInput(
            f"{key}={text:.60} names an empty value; write for example {key}=fp32,bf16",
            pointer="/search/vary",
        )
    return [_typed(word) for word in words]


def _typed(word: str) -> Scalar:
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    for kind in (int, float):
        with suppress(ValueError):
            return kind(word)
    return word


def _changes(pairs: tuple[tuple[str, Scalar], ...]) -> dict[str, object]:
    """One combination in the form of `PlanResult.changes`."""
    own = {key: value for key, value in pairs if key in OWN}
    options = {key if "." in key else f"engine.{key}": value for key, value in pairs if key not in OWN}
    return {**own, **({"options": options} if options else {})}
