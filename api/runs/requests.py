"""What may be asked of a run over HTTP, and the command line that it becomes.

Off until allowed. A path is taken only from the configured roots, a function only from the configured ones, and of a
launcher's options only those that choose a place and a time: no line of shell, no image, no host comes from a request.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field, StrictInt, StrictStr
from pydantic.config import JsonDict

from api.errors import Fault, Problem
from api.runs.folder import RunFolder
from api.settings import Settings
from cost_models.specs.base import Frozen

MAX_STEPS: Final = 1_000_000
PathText = Annotated[StrictStr, Field(min_length=1, max_length=1000, pattern=r"^[^\x00-\x1f\x7f]+$")]
Entry = Annotated[StrictStr, Field(max_length=300, pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
Word = Annotated[StrictStr, Field(max_length=100, pattern=r"^[A-Za-z0-9_.,:=/-]*$")]
Factory = Literal["factory"]
MODEL_PATH: Final = "/model_source/path"


class Synthetic(Frozen):
    """Data made up from the seed."""

    kind: Literal["synthetic"]


class DataFile(Frozen):
    """A text or token file below a configured root."""

    kind: Literal["file"]
    path: PathText
    tokenizer: PathText | None = None
    dtype: Literal["uint16", "uint32"] = "uint16"


class DataFactory(Frozen):
    """A configured function that returns samples."""

    kind: Factory
    entry: Entry


class PlannedModel(Frozen):
    """The plan's own model with weights from the seed."""

    kind: Literal["plan"]


class ModelDirectory(Frozen):
    """Weights of a Hugging Face model in a folder below a configured root; its config must be the plan's model."""

    kind: Literal["directory"]
    path: PathText


class ModelFactory(Frozen):
    """A configured function that returns a module, which the plan's model describes."""

    kind: Factory
    entry: Entry


class Checkpoint(Frozen):
    """A checkpoint every so many steps in the run's own folder; the newest `keep` stay."""

    every: Annotated[StrictInt, Field(ge=1, le=MAX_STEPS)]
    keep: Annotated[StrictInt, Field(ge=1, le=1000)] = 2


class Place(Frozen):
    """Where a launcher puts the job; the server's own settings say the rest. `time` is Slurm's notation."""

    partition: Word | None = None
    qos: Word | None = None
    time: Word | None = None
    queue: Word | None = None


SLURM_PLACE: Final = ("partition", "qos", "time")
KUBERNETES_PLACE: Final = ("queue",)


EXAMPLE: Final[JsonDict] = {
    "launcher": "slurm",
    "steps": 100,
    "data": {"kind": "synthetic"},
    "checkpoint": {"every": 50, "keep": 2},
    "place": {"partition": "gpu", "time": "60"},
}


class LaunchRequest(Frozen):
    """A run of a stored plan."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE]})

    launcher: Literal["local", "slurm", "kubernetes"] = "local"
    steps: Annotated[StrictInt, Field(ge=1, le=MAX_STEPS)] = 10
    model_source: Annotated[PlannedModel | ModelDirectory | ModelFactory, Field(discriminator="kind")] = (
        PlannedModel(kind="plan")
    )
    data: Annotated[Synthetic | DataFile | DataFactory, Field(discriminator="kind")] = Synthetic(
        kind="synthetic"
    )
    checkpoint: Checkpoint | None = None
    seed: Annotated[StrictInt, Field(ge=0, le=2**31 - 1)] = 0
    restarts: Annotated[StrictInt, Field(ge=0, le=100)] = 0
    place: Place = Place()


def check_request(request: LaunchRequest, settings: Settings) -> None:
    """Raise Problem 422 for a path outside the roots, an unknown function, or a place of another launcher."""
    allowed = {"local": (), "slurm": SLURM_PLACE, "kubernetes": KUBERNETES_PLACE}[request.launcher]
    for key in request.place.model_dump(exclude_none=True):
        if key not in allowed:
            words = f"launcher {request.launcher} takes no {key}"
            _refuse(f"/place/{key}", f"{words}; leave it out", tuple(allowed))
    for pointer, path in _paths(request).items():
        found = allowed_path(path, pointer, settings)
        if pointer == MODEL_PATH and not (found / "config.json").is_file():
            _refuse(pointer, "this is no folder with config.json; give a Hugging Face model's", ())
    for pointer, entry in _entries(request).items():
        if entry not in settings.run_factories:
            _refuse(pointer, f"function {entry} is not among those that runs may use", settings.run_factories)


def allowed_path(text: str, pointer: str, settings: Settings) -> Path:
    """A path of a request, links followed; raises Problem 422 unless it lies below a configured root."""
    roots = [root.resolve() for root in settings.run_roots]
    for root in roots:
        path = (root / text).resolve()
        if path.is_relative_to(root) and path.exists():
            return path
    detail = "no such file or folder below the folders that runs may read"
    if not roots:
        detail = "runs may read no folder of this server; start it with --run-root DIR"
    raise Problem(
        422, "invalid_request", f"{pointer}: {detail}", [Fault(pointer, "path_not_allowed", detail)]
    )


def command_of(run_id: str, request: LaunchRequest, folder: RunFolder, settings: Settings) -> list[str]:
    """The command line of the run: `planner run` on the stored plan, or what stands for it in tests."""
    words = [
        *settings.run_command,
        *("run", str(folder.path.resolve() / "plan.json"), "--json", "--progress", "jsonl"),
        *("--log-dir", str(folder.files.resolve()), "--launcher", request.launcher),
        *("--steps", str(request.steps), "--seed", str(request.seed), "--restarts", str(request.restarts)),
    ]
    words += [*_model_words(request, settings), *_data_words(request, settings)]
    if request.checkpoint is not None:
        folder_of = str(folder.files.resolve() / "checkpoints")
        every, keep = str(request.checkpoint.every), str(request.checkpoint.keep)
        words += ["--checkpoint", folder_of, "--every", every, "--keep", keep]
    if request.launcher != "local":
        words += ["--name", run_id]
        place = request.place.model_dump(exclude_none=True)
        # What the request says comes last, and of two the last one counts.
        texts = [
            *configured_launch(request.launcher, settings.run_launch),
            *(f"{k}={v}" for k, v in place.items()),
        ]
        words += [word for text in texts for word in ("--launch", text)]
    return words


def _model_words(request: LaunchRequest, settings: Settings) -> list[str]:
    source = request.model_source
    if isinstance(source, ModelDirectory):
        return ["--weights", str(allowed_path(source.path, MODEL_PATH, settings))]
    if isinstance(source, ModelFactory):
        return ["--factory", source.entry]
    return []


def _data_words(request: LaunchRequest, settings: Settings) -> list[str]:
    data = request.data
    if isinstance(data, DataFactory):
        return ["--data", data.entry]
    if not isinstance(data, DataFile):
        return ["--data", "synthetic"]
    words = ["--data", str(allowed_path(data.path, "/data/path", settings)), "--data-dtype", data.dtype]
    if data.tokenizer is not None:
        words += ["--tokenizer", str(allowed_path(data.tokenizer, "/data/tokenizer", settings))]
    return words


def configured_launch(launcher: str, stated: Sequence[str]) -> list[str]:
    """What the server was started with for a launcher (`--run-launch slurm.partition=gpu`), as KEY=VALUE."""
    prefix = f"{launcher}."
    return [text.removeprefix(prefix) for text in stated if text.startswith(prefix)]


def _paths(request: LaunchRequest) -> Mapping[str, str]:
    paths = {}
    if isinstance(request.model_source, ModelDirectory):
        paths[MODEL_PATH] = request.model_source.path
    if isinstance(request.data, DataFile):
        paths["/data/path"] = request.data.path
        if request.data.tokenizer is not None:
            paths["/data/tokenizer"] = request.data.tokenizer
    return paths


def _entries(request: LaunchRequest) -> Mapping[str, str]:
    entries = {}
    if isinstance(request.model_source, ModelFactory):
        entries["/model_source/entry"] = request.model_source.entry
    if isinstance(request.data, DataFactory):
        entries["/data/entry"] = request.data.entry
    return entries


def _refuse(pointer: str, detail: str, allowed: tuple[str, ...]) -> None:
    fault = Fault(pointer, "not_allowed", detail, allowed)
    raise Problem(422, "invalid_request", f"{pointer}: {detail}", [fault])
