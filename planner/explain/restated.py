"""A complete strategy said again with some knobs otherwise."""

from collections.abc import Mapping

from cost_models.specs.strategy import Strategy, StrategyRequest, strategy_from_mapping


def restated(strategy: Strategy, changes: Mapping[str, object]) -> StrategyRequest:
    """The strategy with other values; a value of None leaves the knob to the engine's default."""
    values = strategy.to_json() | dict(changes)
    return strategy_from_mapping({key: value for key, value in values.items() if value is not None})
