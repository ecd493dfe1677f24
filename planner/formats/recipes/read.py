"""Assignments to a recipe's fields -> Megatron-LM arguments -> job and strategy; the model stands beside them."""

import re
from typing import Any, Final

from cost_models.errors import BadInput
from cost_models.suggest import with_hint
from planner.formats.megatron.arguments import Arguments
from planner.formats.megatron.job import read_job
from planner.formats.megatron.known import REFUSED
from planner.formats.megatron.strategy import degrees, read_strategy
from planner.formats.megatron.tokens import Raw
from planner.formats.recipes.fields import (
    IGNORED,
    OVERWRITTEN,
    PLACES,
    PRECISION_FIELDS,
    PRECISIONS,
    READ_ONLY,
    RECIPE_DEFAULTS,
)
from planner.formats.recipes.python import python_fields
from planner.formats.recipes.yaml_file import yaml_fields
from planner.formats.settings import Beside, Settings, model_beside
from planner.formats.shell import shell_words

ROOTS: Final = {"bridge": ("cfg", "config"), "nemo": ("recipe",)}
_STATEMENT: Final = re.compile(r"^\s*([A-Za-z_][\w.]*)\s*=\s*([^=].*?)\s*(?:#.*)?$")
_WORD: Final = re.compile(r"^\+{0,2}([A-Za-z_][\w]*(?:\.[\w]+)+|mixed_precision)=(.*)$")


def read_bridge(text: str, beside: Beside) -> Settings:
    """Megatron-Bridge: overrides `model.tensor_model_parallel_size=4`, `cfg.model.… = 4` in Python, or YAML."""
    return _read(text, beside, "bridge")


def read_nemo(text: str, beside: Beside) -> Settings:
    """NeMo 2: `recipe.trainer.strategy.tensor_model_parallel_size = 4` in Python, overrides or YAML."""
    return _read(text, beside, "nemo")


def looks_like_bridge(text: str) -> bool:
    """Fields that stand where Bridge has them."""
    fields = ("model.tensor_model_parallel_size", "train.micro_batch_size")
    return any(field in text for field in fields) or _nested(text, fields)


def looks_like_nemo(text: str) -> bool:
    """Fields that stand where NeMo has them."""
    fields = ("trainer.strategy.tensor_model_parallel_size", "data.micro_batch_size")
    return "trainer.strategy." in text or fields[1] in text or _nested(text, fields)


def _nested(text: str, fields: tuple[str, ...]) -> bool:
    """Whether a text is YAML that holds one of these fields; parsed only where their last words stand in it."""
    return any(f"{field.rpartition('.')[2]}:" in text for field in fields) and any(
        field in yaml_fields(text) for field in fields
    )


def _read(text: str, beside: Beside, framework: str) -> Settings:
    model = model_beside(beside, "a recipe names its model, not its sizes")
    fields = assignments(text, framework)
    if not fields:
        raise BadInput(f"no settings of {framework} found; give lines such as {_example(framework)}")
    overwritten = tuple(
        f"{field}={fields.pop(field)} is overwritten by the mixed precision"
        for field in OVERWRITTEN
        if field in fields
    )
    raw, unknown, ignored = _arguments(fields, framework)
    seq_len = beside.job.get("seq_len")
    if isinstance(seq_len, int):
        raw["seq-length"] = str(seq_len)
    elif "seq-length" not in raw:
        raise BadInput("the settings hold no sequence length; give --seq-len", pointer="/job/seq_len")
    assumed = _defaults(raw)
    arguments = Arguments(_with_model(raw, model))
    strategy = read_strategy(arguments, model.num_blocks, beside.devices)
    axes = degrees(arguments)
    inner = axes["tp"] * axes["pp"] * axes["cp"]
    job = read_job(arguments, beside.devices // inner, "gpt", beside.engine_version)
    trainable = fields.get("peft.dim")
    if trainable is not None:
        job = job.model_copy(update={"options": {**job.options, "job.trainable": f"lora:r={trainable}"}})
    notes = (*overwritten, *assumed, *arguments.assumed)
    return Settings(framework, model, job, strategy, notes, ignored, unknown)


def assignments(text: str, framework: str) -> dict[str, str]:
    """Dotted fields and their values: Python statements on the recipe, and `field=value` words of a command line."""
    stated = python_fields(text, ROOTS[framework], frozenset(_by_field(framework)))
    if stated:
        return {field: _literal(value) for field, value in stated.items()}
    found: dict[str, str] = {}
    for line in text.splitlines():
        match = _STATEMENT.match(line)
        root, _, field = match[1].partition(".") if match else ("", "", "")
        if match and field and root in ROOTS[framework]:
            found[field] = _literal(match[2])
    found = found or yaml_fields(text)
    if found:
        return found
    for word in shell_words(text):
        match = _WORD.match(word)
        if match:
            field = match[1].removeprefix(f"{ROOTS[framework][0]}.")
            found[field] = _literal(match[2])
    return found


def _literal(text: str) -> str:
    """A value without quotation, call or list brackets; switches as true and false, None as nothing."""
    text = text.strip().rstrip(",")
    if re.fullmatch(r"[\w.]+\(\)", text):  # run.Config(bf16_mixed) and bf16_mixed() name the same
        text = text[:-2]
    config = re.fullmatch(r"run\.Config\(([\w.]+).*\)", text)
    text = config[1] if config else text
    text = text.strip("\"'[]() ")
    words = [word.strip().strip("\"'") for word in text.split(",")]
    joined = " ".join(words)
    return {"True": "true", "False": "false", "None": ""}.get(joined, joined)


def _arguments(fields: dict[str, str], framework: str) -> tuple[Raw, tuple[str, ...], tuple[str, ...]]:
    """Megatron-LM's arguments, fields that are not known, fields without effect here."""
    by_field, named = _by_field(framework), PRECISION_FIELDS[framework]
    raw: Raw = {}
    for field in (named, f"{named}.precision"):
        if field in fields:
            raw |= _precision(fields[field], field)
    implied = {name: name for name in raw}
    unknown, ignored = [], []
    for field, value in fields.items():
        if field in (named, f"{named}.precision"):
            continue
        if field in by_field:
            if by_field[field] in implied:
                raw.pop(implied.pop(by_field[field]), None)  # a field says more than a name
            _put(raw, by_field[field], value)
        elif _refused(field) and value not in ("", "false", "0"):
            raise BadInput(f"{field} {value:.60}: {REFUSED[_refused(field)]}", pointer=f"/{field}")
        elif (
            field in IGNORED
            or field.partition(".")[0] in IGNORED
            or field == "peft.dim"
            or _is_plain(field, framework)
        ):
            ignored.append(field)
        else:
            unknown.append(with_hint(field, sorted(by_field)))
    return raw, tuple(unknown), tuple(ignored)


def _refused(field: str) -> str:
    """Megatron-LM's argument of the field's own name, where it is one that is refused; else nothing."""
    name = field.rpartition(".")[2].replace("_", "-")
    return name if name in REFUSED and field.startswith("model.") else ""


def _is_plain(field: str, framework: str) -> bool:
    """Whether a field lies beside the named precision and only repeats what it means."""
    section, _, name = field.rpartition(".")
    return section == PRECISION_FIELDS[framework] and name in (
        "params_dtype",
        "pipeline_dtype",
        "autocast_enabled",
    )


def _by_field(framework: str) -> dict[str, str]:
    """Dotted field -> Megatron-LM's argument."""
    return dict(READ_ONLY[framework]) | {
        field: name
        for name, place in PLACES.items()
        for field in (place.bridge if framework == "bridge" else place.nemo)
    }


def _put(raw: Raw, name: str, value: str) -> None:
    """One argument; two fields that say it differently are an error, as in Bridge's own validation."""
    place = PLACES[name]
    if place.off:
        value = {"true": "false", "false": "true"}.get(value, value)
    if not value or (place.kind == "switch" and value == "false"):
        raw.setdefault(name, "false") if place.kind == "switch" else None
        return
    if raw.get(name, value) != value:
        raise BadInput(f"two fields say {name} differently ({raw[name]} and {value}); make them equal")
    raw[name] = value


def _precision(value: str, field: str) -> Raw:
    """Arguments of a named mixed precision; NeMo's lie in modules, of which the last word counts."""
    name = value.rpartition(".")[2].replace("-", "_")
    name = {"16_mixed": "fp16_mixed"}.get(name, name)
    if name not in PRECISIONS:
        raise BadInput(f"{field} {value:.60} is not known; use {', '.join(PRECISIONS)}", pointer=f"/{field}")
    return dict(PRECISIONS[name])


def _defaults(raw: Raw) -> tuple[str, ...]:
    """Fill what recipes state themselves; the names of what was filled."""
    if not any(name in raw for name in ("bf16", "fp16")):
        raw["bf16"] = "true"
    filled = {name: value for name, value in RECIPE_DEFAULTS.items() if name not in raw}
    raw |= filled
    return tuple(f"{name}={value}" for name, value in filled.items())


def _with_model(raw: Raw, model: Any) -> Raw:
    """Arguments that say of the model what the reader of degrees asks for."""
    experts: Raw = {"num-experts": str(model.num_experts)} if model.is_moe else {}
    if "expert-tensor-parallel-size" not in raw:
        experts["expert-tensor-parallel-size"] = "1"  # Bridge's and NeMo's default is one, not tp
    return {**raw, **experts}


def _example(framework: str) -> str:
    place = PLACES["tensor-model-parallel-size"]
    return f"{(place.bridge if framework == 'bridge' else place.nemo)[0]}=4"
