"""From what was stated (options, a plan file, a planner.yaml) to a Situation; options win over files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from cost_models.errors import BadInput
from cost_models.specs.job import JobRequest
from cost_models.specs.strategy import StrategyRequest, parse_strategy, strategy_from_mapping
from cost_models.suggest import did_you_mean
from planner.cli.document import Document, read_document
from planner.cli.inputs import (
    STANDARD_INPUT,
    config_file,
    is_file,
    is_model_path,
    is_path,
    read_json,
    read_text,
    shown,
)
from planner.cli.options import JOB_KEYS
from planner.request import ClusterInput, ModelInput

if TYPE_CHECKING:
    from cost_models.readers import Reader
    from cost_models.specs.cluster import ClusterSpec
    from cost_models.specs.model import ModelSpec
    from planner.situation import Situation

Stated = str | Mapping[str, Any]
T = TypeVar("T", bound=BaseModel)

FILE_KEYS: Final = ("model", "cluster", "job", "strategy")


@dataclass(frozen=True, slots=True)
class Question:
    """A model, a cluster, a job and perhaps a strategy, as stated; nothing is resolved yet."""

    model: Stated | None = None
    cluster: Stated | None = None
    job: Mapping[str, object] = field(default_factory=dict)
    strategy: Stated | None = None

    def over(self, base: "Question") -> "Question":
        """This question where it says something, `base` elsewhere; job options are merged key by key."""
        options = {**_options(base.job), **_options(self.job)}
        job = {**base.job, **self.job} | ({"options": options} if options else {})
        return Question(
            self.model or base.model, self.cluster or base.cluster, job, self.strategy or base.strategy
        )


def question_from_options(given: Mapping[str, Any]) -> Question:
    """What the options of one command line state."""
    job: dict[str, object] = {key: given[key] for key in JOB_KEYS if given.get(key) is not None}
    settings: dict[str, object] = {}
    for key, value in given.get("settings") or ():
        if key in settings:
            raise BadInput(f"--set {key[:60]} is given twice; give it once", pointer=f"/job/options/{key}")
        settings[key] = value
    if settings:
        job["options"] = settings
    question = Question(given.get("model"), given.get("cluster"), job, given.get("strategy"))
    if [question.model, question.cluster, question.strategy].count(STANDARD_INPUT) > 1:
        raise BadInput("standard input can be read once; give - to one of --model, --cluster, --strategy")
    return question


def question_from_file(name: str) -> Question:
    """What a plan file or a planner.yaml states; paths in it are relative to it."""
    return question_of_document(read_document(name))


def question_of_document(document: Document) -> Question:
    """The question of a plan file or a planner.yaml that was read."""
    name, values = document.name, document.values
    if document.is_plan:
        return _question_from_plan(values)
    for key in values:
        if key not in FILE_KEYS:
            hint = did_you_mean(str(key), FILE_KEYS)
            raise BadInput(
                f"file {shown(name)} has the key {str(key)[:60]!r}, which is not known; "
                f"{hint}keys: {', '.join(FILE_KEYS)} (or give a plan file)"
            )
    return question_of_mapping(values, document.folder)


def question_of_mapping(values: Mapping[str, Any], folder: Path) -> Question:
    """The question that the keys of FILE_KEYS state; relative paths in it start in `folder`."""
    job = values.get("job", {})
    if not isinstance(job, dict):
        raise BadInput(f"job holds a {type(job).__name__}; give keys such as seq_len")
    model, cluster, strategy = (_stated(values, key, folder) for key in ("model", "cluster", "strategy"))
    return Question(model, cluster, job, strategy)


def situation_of(question: Question) -> "Situation":
    """Read, resolve and check what was stated; raises BadInput naming what is missing or wrong."""
    from planner.situation import situate

    for value, option in ((question.model, "--model"), (question.cluster, "--cluster")):
        if not value:
            raise BadInput(f"no {option[2:]} given; give {option}", pointer=f"/{option[2:]}")
    if question.job.get("global_batch") is None:
        raise BadInput("no global batch given; give --global-batch", pointer="/job/global_batch")
    job = validated(JobRequest, question.job, "job")
    return situate(load_model_input(question.model or ""), load_cluster_input(question.cluster or ""), job)


def strategy_of(question: Question) -> StrategyRequest:
    """The strategy that was stated: text, JSON, a file with either, or an object."""
    stated = question.strategy
    if stated is None or (isinstance(stated, str) and not stated.strip()):
        raise BadInput('no strategy given; give --strategy "tp=8,pp=4" or a file', pointer="/strategy")
    if not isinstance(stated, str):
        return strategy_from_mapping(stated)
    if stated.lstrip().startswith("{"):
        return strategy_from_mapping(read_json(stated, stated, "strategy"))
    is_text = "=" in stated or not is_path(stated)
    if stated != STANDARD_INPUT and is_text and not is_file(stated):
        return parse_strategy(stated)
    text = read_text(stated, "strategy")
    if text.lstrip().startswith("{"):
        return strategy_from_mapping(read_json(text, stated, "strategy"))
    return parse_strategy(",".join(text.split()))


def load_model_input(stated: Stated, reader: "Reader" = "auto") -> "ModelSpec":
    """A model from a catalog name, a file, a module's factory, standard input, or a tagged object."""
    from cost_models.profiles import list_models
    from cost_models.readers import is_factory, model_from_text, read_factory, read_model
    from planner.request import CatalogModel
    from planner.situation import resolve_model

    if not isinstance(stated, str):
        return resolve_model(_tagged(TypeAdapter(ModelInput), stated, "model"))
    if is_factory(stated) and not is_file(stated):
        return read_factory(stated)
    if stated != STANDARD_INPUT and (stated in list_models() or not is_model_path(stated)):
        return resolve_model(CatalogModel(name=_encodable(stated)[:200]))
    stated = config_file(stated)
    text = read_text(stated, "model")
    if stated.lower().endswith(".toml"):
        return model_from_text(text, Path(stated).stem[:80], toml=True)
    config = read_json(text, stated, "model")
    return read_model(config, name=_model_name(stated, config), reader=reader)


def load_cluster_input(stated: Stated) -> "ClusterSpec":
    """A cluster from a preset, a file, standard input, or a tagged object."""
    from cost_models.profiles import cluster_from_spec, load_cluster
    from planner.situation import resolve_cluster

    if not isinstance(stated, str):
        return resolve_cluster(_tagged(TypeAdapter(ClusterInput), stated, "cluster"))
    if stated != STANDARD_INPUT:
        return load_cluster(stated)
    return cluster_from_spec(read_json(read_text(stated, "cluster"), stated, "cluster"))


def validated(kind: type[T], values: Mapping[str, object], what: str) -> T:
    """The value object of plain data, or one sentence that names the first key that is wrong."""
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        raise _bad_input(error, what) from None


def _tagged(adapter: TypeAdapter[Any], values: Mapping[str, Any], what: str) -> Any:
    try:
        return adapter.validate_python(dict(values))
    except ValidationError as error:
        raise _bad_input(error, what) from None


def _bad_input(error: ValidationError, what: str) -> BadInput:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    path = ".".join([what, *(str(part) for part in first["loc"])])[:200]
    more = f" ({error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return BadInput(f"{path}: {first['msg']}{more}; correct it", pointer="/" + path.replace(".", "/"))


def _question_from_plan(values: Mapping[str, Any]) -> Question:
    from planner.plan_file import parse_plan

    plan = parse_plan(values)
    return Question(
        plan.request.model.model_dump(),
        plan.request.cluster.model_dump(),
        plan.request.job.model_dump(mode="json"),
        plan.best_strategy(),
    )


def _stated(values: Mapping[str, Any], key: str, folder: Path) -> Stated | None:
    """One key of a planner.yaml; a relative path in it starts where the file lies."""
    value = values.get(key)
    if value is None or isinstance(value, dict):
        return value
    if not isinstance(value, str):
        raise BadInput(f"{key} holds a {type(value).__name__}; give a name, a path or an object")
    beside = folder / value
    return str(beside) if "=" not in value and is_path(value) and beside.is_file() else value


def _options(job: Mapping[str, object]) -> dict[str, Any]:
    options = job.get("options", {})
    if not isinstance(options, Mapping):
        raise BadInput(
            f"job.options holds a {type(options).__name__}; give keys such as engine.attention: flash"
        )
    return dict(options)


def _encodable(text: str) -> str:
    """Text without the lone surrogates that stand for undecodable bytes of a command line."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _model_name(stated: str, config: Mapping[str, Any]) -> str:
    """A short name for people: the config's own, or the file's, or its folder's for a config.json."""
    own = config.get("_name_or_path") or config.get("name")
    if isinstance(own, str) and own:
        return own.rstrip("/").rpartition("/")[2][:80]
    if stated == STANDARD_INPUT:
        return "model"
    path = Path(stated)
    return (path.resolve().parent.name if path.stem == "config" else path.stem)[:80] or "model"


def validated_limits(stated: Mapping[str, Any]) -> dict[str, Any]:
    """Limits of a planner.yaml: shares as numbers or as 5%; raises BadInput naming the key."""
    found: dict[str, Any] = {}
    for key, value in stated.items():
        if key == "fail_at_risk":
            if not isinstance(value, bool):
                raise BadInput(f"limits.{key} is {value!r:.40}; give true or false", pointer=f"/limits/{key}")
            found[key] = value
            continue
        text = str(value).strip()
        try:
            share = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
        except ValueError:
            share = -1.0
        most = 1.0 if key == "max_memory_fraction" else 100.0
        if isinstance(value, bool) or not 0.0 <= share <= most:
            raise BadInput(
                f"limits.{key} is {value!r:.40}; give a share such as 0.05 or 5%", pointer=f"/limits/{key}"
            )
        found[key] = share
    return found
