"""What the service answers, as closed schemas; the objects are those of the command line's `--json`.

The models describe answers, they do not make them: that every answer holds them is tested.
"""

from api.answers.explanations import ComparisonBody, ContrastBody, ExplanationBody, UnsolvedBody
from api.answers.facts import AccuracyBody, ExportBody, HealthBody, InspectionBody, ProfilesBody
from api.answers.plans import PlanBody, PlansBody
from api.answers.predictions import CheckBody, EvaluationsBody
from api.answers.simulations import SimulationBody
from api.answers.sizes import SizesBody

__all__ = [
    "AccuracyBody",
    "CheckBody",
    "ComparisonBody",
    "ContrastBody",
    "EvaluationsBody",
    "ExplanationBody",
    "ExportBody",
    "HealthBody",
    "InspectionBody",
    "PlanBody",
    "PlansBody",
    "ProfilesBody",
    "SimulationBody",
    "SizesBody",
    "UnsolvedBody",
]
