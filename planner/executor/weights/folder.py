"""The folder that weights are written into: config and index beside the files, its name at the end. No torch."""

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from planner.executor.request import RunOrder
from planner.executor.weights.files import PlannedFile, index_of
from planner.executor.weights.stored import CONFIG_FILE, INDEX_FILE, read_config, stated_dtype

WORDS: Final = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
"""Element types in transformers' words and in ours."""

BESIDE: Final = (
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "chat_template.jinja",
)
"""Files of the folder that was read that are copied: what makes text of tokens is not trained."""


def saved_dtype(order: RunOrder) -> str:
    """Element type of what is written: the one asked for, else the config's, else fp32."""
    if order.options.save_dtype:
        return order.options.save_dtype
    return WORDS.get(stated_dtype(read_config(Path(order.options.weights))), "fp32")


def partial_of(final: Path, token: str) -> Path:
    """Where the files lie until they are complete."""
    return final.with_name(f"{final.name}.partial-{token}")


def remove_partials(final: Path) -> None:
    """Remove what runs that were killed while they wrote this folder left of it."""
    for path in final.parent.glob(f"{final.name}.partial-*"):
        shutil.rmtree(path, ignore_errors=True)


def finish_folder(
    order: RunOrder, files: Sequence[PlannedFile], partial: Path, final: Path
) -> OSError | None:
    """Config and index beside the files, everything on the disk, then the folder's name; what went wrong."""
    source = Path(order.options.weights)
    try:
        for name in BESIDE:
            if (source / name).is_file():
                shutil.copyfile(source / name, partial / name)
        if len(files) > 1:
            _write_json(partial / INDEX_FILE, index_of(files))
        _write_json(partial / CONFIG_FILE, written_config(order))
        for path in partial.iterdir():
            _sync(path)
        partial.rename(final)
        _sync(final.parent)
    except OSError as error:
        return error
    return None


def written_config(order: RunOrder) -> dict[str, Any]:
    """The config that was read, with the element type that is written, and no prediction layers that are not."""
    config = dict(read_config(Path(order.options.weights)))
    word = next(word for word, ours in WORDS.items() if ours == saved_dtype(order))
    config["torch_dtype" if "torch_dtype" in config else "dtype"] = word
    if config.get("num_nextn_predict_layers") and not order.predictions:
        config["num_nextn_predict_layers"] = 0
    return config


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _sync(path: Path) -> None:
    """Let what was written reach the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
