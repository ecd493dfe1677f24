"""What a framework's settings say, in this planner's own nouns."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cost_models.specs.job import JobRequest
from cost_models.specs.model import ModelSpec
from cost_models.specs.strategy import StrategyRequest


@dataclass(frozen=True, slots=True)
class Beside:
    """What settings leave to others: the devices they run on, and model and job where a framework keeps them elsewhere.

    `job` holds keys of a JobRequest that were stated beside the file.
    """

    devices: int
    model: ModelSpec | None = None
    job: Mapping[str, object] = field(default_factory=dict)
    engine_version: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """Model, job and strategy of one run of a framework.

    `assumed` names what the settings leave to the framework's default or to files that are not at hand; `ignored`
    what was read and changes neither memory nor time here; `unknown` what the reader does not know.
    """

    framework: str
    model: ModelSpec
    job: JobRequest
    strategy: StrategyRequest
    assumed: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
