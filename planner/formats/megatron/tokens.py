"""Megatron-LM arguments from their three written forms: a command line or shell script, YAML, a plain mapping."""

import re
from collections.abc import Mapping
from typing import Any, Final

import yaml  # type: ignore[import-untyped]

from cost_models.errors import BadInput
from planner.formats.shell import shell_commands, shell_words
from planner.strict_yaml import parse_yaml

SECTIONS: Final = ("language_model", "model_parallel")
"""Sections of --yaml-cfg (examples/gpt3/gpt_config.yaml)."""

Raw = dict[str, str]
"""Argument name without dashes -> its words joined by a blank; `true` for a switch."""


def arguments_of_text(text: str) -> Raw:
    """Arguments of a YAML test definition (MODEL_ARGS or plain keys), or of a command line or shell script."""
    document = _yaml_mapping(text)
    if document is not None:
        parse_yaml(text, "of Megatron-LM", "settings")  # refuses what stands twice
        model_args = document.get("MODEL_ARGS", document)
        if not isinstance(model_args, Mapping):
            raise BadInput("MODEL_ARGS is no mapping; write one `--name: value` a line")
        return arguments_of_mapping(_flat(model_args))
    return _arguments_of_words(_program_words(shell_commands(text)))


def arguments_of_mapping(values: Mapping[Any, Any]) -> Raw:
    """Arguments of a mapping of names, with or without dashes, to values; a false value is an absent switch."""
    found: Raw = {}
    for key, value in values.items():
        name = str(key).strip().lstrip("-").replace("_", "-")
        if value is None or value is False:
            continue
        words = value if isinstance(value, list | tuple) else [value]
        _put(found, name, " ".join(_word(each) for each in words) or "true")
    return found


def _flat(values: Mapping[Any, Any]) -> dict[Any, Any]:
    """Entries of the sections of --yaml-cfg beside the others, its names turned into those of the arguments."""
    found: dict[Any, Any] = {key: value for key, value in values.items() if key not in SECTIONS}
    for section in SECTIONS:
        inside = values.get(section)
        if isinstance(inside, Mapping):
            found |= inside
    if found.pop("add_bias_linear", True) is False:
        found["disable_bias_linear"] = True
    if str(found.get("activation_func", "")) == "swiglu":
        found |= {"swiglu": True, "activation_func": None}
    return found


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


def _yaml_mapping(text: str) -> Mapping[str, Any] | None:
    """The mapping that YAML text holds; None where it is something else, as command lines are."""
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    return document if isinstance(document, Mapping) else None


def _program_words(commands: list[list[str]]) -> list[str]:
    """Words after the program that takes the most arguments; all of them where no command names a program."""
    found: list[str] = []
    for command in (_unwrapped(each) for each in commands):
        starts = [index for index, word in enumerate(command) if word.endswith(".py")]
        words = command[starts[0] + 1 :] if starts else []
        if found != words and _trains(found) and _trains(words):
            raise BadInput("the script starts two trainings with different arguments; keep one of them")
        if _switches(words) > _switches(found):
            found = words
    return found or [word for command in commands for word in command]


def _unwrapped(command: list[str]) -> list[str]:
    """Words of a command; those of the line where a shell takes a whole one as a word (`sh -c "python …"`)."""
    words: list[str] = []
    for word in command:
        inside = word.split() if ".py " in word and "--" in word else [word]
        words += shell_words(word) if len(inside) > 1 else inside
    return words


def _trains(words: list[str]) -> bool:
    """Whether arguments are those of a training."""
    return any(word.partition("=")[0].replace("_", "-") == "--micro-batch-size" for word in words)


def _switches(words: list[str]) -> int:
    return sum(word.startswith("--") for word in words)


def _arguments_of_words(words: list[str]) -> Raw:
    """`--name value…` pairs; what stands before the first is no argument."""
    found: Raw = {}
    name, values = "", []
    for word in [*words, "--"]:
        if not word.startswith("--") or _is_number(word):
            values.append(word)
            continue
        if name:
            _put(found, name, " ".join(values) or "true")
        name, equals, value = word.removeprefix("--").replace("_", "-").partition("=")
        values = [value] if equals else []
    if not found:
        raise BadInput("no --arguments found; give Megatron-LM arguments as a command line, a script or YAML")
    return found


def _put(found: Raw, name: str, value: str) -> None:
    """Keep an argument; two different values of one name are an error."""
    if found.get(name, value) != value:
        raise BadInput(f"--{name} is given twice ({found[name]:.60} and {value:.60}); give it once")
    found[name] = value


def _is_number(word: str) -> bool:
    return bool(re.fullmatch(r"-{1,2}[0-9.]+", word))
