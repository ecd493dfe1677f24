"""The planner's story: enumerate, bound, search, verify, explain. Read this first."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from cost_models.errors import IllegalStrategy
from planner.answers import Certificate, PlanResult, Prediction, Progress
from planner.candidates import Candidates, enumerate_candidates
from planner.choice import Choice, choose
from planner.errors import VerificationFailed
from planner.evaluation import Context, evaluate_many
from planner.objectives import StepOracle, plan_for
from planner.relax import relaxations
from planner.request import SearchRequest
from planner.restrictions import Restrictions, check_scopes, read_restrictions
from planner.search.mixed.search import MixedOutcome, MixedSearch
from planner.search.mixed.space import check_groups
from planner.search.space.search_state import Found, RecomputeRule, SearchLimits, SearchState, mesh_axes
from planner.search.space.space_search import SpaceSearch
from planner.situation import Situation
from planner.varied import varied
from planner.verify import verify

ROUNDING = 1e-9
"""The search closes a gap smaller by this share, so that a certificate computed from rounded seconds keeps the gap."""

LEAST_SECONDS = 1e-3
"""Left to a search whose time went into laying out its space."""


Report = Callable[[Progress], None]
Stop = Callable[[], bool]


def never() -> bool:
    """Do not stop."""
    return False


def make_plan(
    situation: Situation, search: SearchRequest, on_progress: Report | None = None, stop: Stop = never
) -> PlanResult:
    """The best strategy for the objective with a certificate, alternatives, or why nothing fits.

    `stop` is asked many times a second, from several threads; once it says yes, the search for the least step ends as
    if its time were up, with the best plan so far.
    """
    report = on_progress or (lambda progress: None)
    oracle = varied(StepOracle(partial(fastest_plan, stop=stop), least_step_s))
    if search.objective == "step_time" and not search.pareto and search.run.tokens is None:
        return oracle.fastest(situation, search, report)
    return plan_for(situation, search, oracle, report)


def fastest_plan(
    situation: Situation,
    search: SearchRequest,
    report: Report,
    *,
    explain: bool = True,
    within_s: float = np.inf,
    stop: Stop = never,
) -> PlanResult:
    """The plan with the least step of the declared space, in seconds below `within_s`.

    `explain` also looks for what would help where none fits.
    """
    started = time.monotonic()
    context = Context.of(situation, allow_at_risk=search.allow_at_risk)
    restrictions = read_restrictions(search.pins, search.bans)
    rule, limits = _search_parts(context, restrictions, search, within_s)
    parts = (rule, replace(limits, stop=stop))
    state, candidates = _searched(context, restrictions, parts, report)
    best, alternatives = _predictions(situation, state, search.top_k)
    choice = _choice(situation, state, search, best, alternatives)
    if choice is not None:
        best, alternatives = choice.chosen, choice.others(alternatives)
        verify(context, best)
    certificate = _certificate(candidates, state, best, time.monotonic() - started)
    status = _status(best, state, certificate, search.gap)
    if best is not None:
        return PlanResult(status, best, alternatives, certificate, confidence=choice)
    if status == "unknown":
        return PlanResult(status, None, (), certificate, reason=_stopped(search, state))
    if not (explain and search.explain):
        return PlanResult(status, None, (), certificate)
    deadline = started + float(search.max_seconds)
    reason, changes = relaxations(situation, candidates, search, deadline)
    return PlanResult(status, None, (), certificate, changes, reason)


def least_step_s(situation: Situation, search: SearchRequest) -> float:
    """A step time in seconds that no layout beats, without solving anything; infinite where none fits or is legal."""
    context = Context.of(situation, allow_at_risk=search.allow_at_risk)
    restrictions = read_restrictions(search.pins, search.bans)
    parts = _search_parts(context, restrictions, search, np.inf)
    if situation.cluster.is_mixed:
        return MixedSearch(context.pools, restrictions, *parts, lambda progress: None).least_bound_s()
    candidates = enumerate_candidates(situation.engine, context.facts, restrictions)
    return SpaceSearch(context.pricer, *parts, lambda progress: None).least_of_families_s(candidates.families)


def _searched(
    context: Context, restrictions: Restrictions, parts: tuple[RecomputeRule, SearchLimits], report: Report
) -> tuple[SearchState, Candidates | MixedOutcome]:
    """What the search of the whole space found, and what the space held; laying it out counts as its time."""
    started = time.monotonic()
    if context.facts.cluster.is_mixed:
        outcome = MixedSearch(context.pools, restrictions, *parts, report).run()
        return outcome.state, outcome
    check_groups(restrictions, context.facts.cluster.name, ())
    candidates = enumerate_candidates(context.situation.engine, context.facts, restrictions)
    rule, limits = parts
    left_s = max(limits.max_seconds - (time.monotonic() - started), LEAST_SECONDS)
    search = SpaceSearch(context.pricer, rule, replace(limits, max_seconds=left_s), report)
    return search.run_families(candidates.families), candidates


def _search_parts(
    context: Context, restrictions: Restrictions, search: SearchRequest, within_s: float
) -> tuple[RecomputeRule, SearchLimits]:
    model = context.facts.model
    space = context.situation.engine.space(model, context.facts.job)
    check_scopes(restrictions, space.recomputed_apart(model), model.name, context.situation.engine.name)
    rule = RecomputeRule(
        free=restrictions.may_recompute_fully and space.full_recompute,
        everywhere=restrictions.all_recomputed,
        needed=restrictions.needs_full,
        takes=restrictions.takes_recompute,
        scopes=model.recompute_scopes,
    )
    gap, seconds = search.gap * (1.0 - ROUNDING), float(search.max_seconds)
    return rule, SearchLimits(gap, seconds, search.seed, search.top_k, within_s)


def _predictions(
    situation: Situation, state: SearchState, top_k: int
) -> tuple[Prediction | None, tuple[Prediction, ...]]:
    """Predictions of the best strategy and of the next best ones that differ from it in a mesh axis."""
    if state.best is None:
        return None, ()
    chosen = [state.best.strategy, *(found.strategy for found in _runners_up(state, top_k))]
    best, *others = evaluate_many(situation, chosen)
    if isinstance(best, IllegalStrategy):
        raise VerificationFailed(f"the search took {state.best.strategy.text()} for legal: {best}")
    return best, tuple(other for other in others if isinstance(other, Prediction))


def _choice(
    situation: Situation,
    state: SearchState,
    search: SearchRequest,
    best: Prediction | None,
    alternatives: tuple[Prediction, ...],
) -> Choice | None:
    """The best plan or, where that is preferred, a simpler one that is as good within what is known."""
    if best is None:
        return None
    met = [(found.strategy, found.step_s) for found in state.found]
    return choose(situation, best, alternatives, met, prefer_simple=search.prefer_simple)


def _runners_up(state: SearchState, top_k: int) -> list[Found]:
    best = mesh_axes(state.best.strategy) if state.best else None
    return [found for found in state.distinct() if mesh_axes(found.strategy) != best][:top_k]


def _certificate(
    candidates: Candidates | MixedOutcome, state: SearchState, best: Prediction | None, wall_s: float
) -> Certificate:
    """Lower = min(best, every mesh's bound when it was put away); gap = (best - lower) / best."""
    bound = min(state.lower_bound_s, best.step_s) if best else state.lower_bound_s
    finite = bool(np.isfinite(bound))
    return Certificate(
        objective="step_time",
        lower_bound_s=bound if finite else None,
        gap=(best.step_s - bound) / best.step_s if best and finite else None,
        meshes_total=candidates.total,
        meshes_illegal=candidates.illegal,
        meshes_out_of_memory=state.out_of_memory,
        meshes_bounded=state.bounded,
        meshes_solved=state.solved,
        meshes_open=state.open,
        space=candidates.space,
        wall_s=wall_s,
    )


def _stopped(search: SearchRequest, state: SearchState) -> str:
    """Why there is neither a plan nor a proof that there is none."""
    return (
        f"stopped after {search.max_seconds:g} s with {state.open} meshes not looked at and no layout found that "
        "fits; raise max_seconds"
    )


def _status(best: Prediction | None, state: SearchState, certificate: Certificate, gap: float) -> str:
    """optimal, feasible, infeasible or unknown: never two of them merged."""
    if best is None:
        return "unknown" if state.open else "infeasible"
    return "optimal" if certificate.gap is not None and certificate.gap <= gap else "feasible"
