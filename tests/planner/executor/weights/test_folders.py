"""What of a folder is refused before anything starts, by name and with counts; what is passed over and said."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from cost_models.errors import BadInput
from planner.executor.model.build import build_chunk, whole
from planner.executor.model.options import GIVEN, PROMISED, BuildOptions
from planner.executor.request import RunOrder
from planner.executor.weights.checks import check_weights
from planner.executor.weights.match import match
from planner.executor.weights.names import naming_of
from planner.executor.weights.stored import read_directory, read_header
from tests.planner.executor.model.library import chunk_of, library_model
from tests.planner.executor.orders import tiny_order
from tests.planner.executor.weights.families import FAMILIES

Change = Callable[[dict[str, Tensor]], object]
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a tiny Llama in one file."""
    folder = tmp_path_factory.mktemp("llama")
    library_model(FAMILIES["llama"], 1).save_pretrained(folder)
    return folder


def _changed(llama: Path, folder: Path, change: Change) -> Path:
    """A copy of the folder with other tensors."""
    tensors = load_file(llama / WEIGHTS)
    change(tensors)
    save_file(tensors, folder / WEIGHTS)
    (folder / "config.json").write_text((llama / "config.json").read_text())
    return folder


def _order(folder: Path, **options: Any) -> RunOrder:
    config = json.loads((folder / "config.json").read_text())
    return tiny_order("dp=1", config=config, weights=str(folder), **options)


def _refused(folder: Path, *words: str, **options: Any) -> None:
    with pytest.raises(BadInput) as caught:
        check_weights(_order(folder, **options))
    assert all(word in str(caught.value) for word in words), caught.value


Q = "model.layers.1.self_attn.q_proj.weight"
CHANGES: dict[str, tuple[Change, tuple[str, ...]]] = {
    # Four blocks of nine tensors, table, norm and head: 39.
    "missing": (lambda t: t.pop(Q), ("1 of 39 tensors are missing", Q)),
    "unknown": (
        lambda t: t.update({f"x.{i}": t[Q].clone() for i in range(5)}),
        ("5 of 44", "x.0, x.1, x.2", "2 more"),
    ),
    "shape": (lambda t: t.update({Q: t[Q][:8].clone()}), ("1 of 39", f"{Q} is (8, 64)", "(64, 64)")),
    "type": (lambda t: t.update({Q: t[Q].to(torch.int8)}), (f"{Q} (I8)", "F32")),
}


@pytest.mark.parametrize("name", CHANGES)
def test_tensors_that_do_not_fit_are_named(name: str, llama: Path, tmp_path: Path) -> None:
    change, words = CHANGES[name]
    _refused(_changed(llama, tmp_path, change), *words)


def test_tensors_that_nobody_needs_are_passed_over(llama: Path, tmp_path: Path) -> None:
    beside = "model.layers.0.self_attn.rotary_emb.inv_freq"
    directory = read_directory(_changed(llama, tmp_path, lambda t: t.update({beside: torch.ones(4)})))
    assert match(directory, directory.model, predictions=False).ignored == (beside,)


def test_broken_folders_are_refused(llama: Path, tmp_path: Path) -> None:
    config = (llama / "config.json").read_text()
    content = (llama / WEIGHTS).read_bytes()
    broken: dict[str, tuple[dict[str, bytes], str]] = {
        "cut": ({WEIGHTS: content[:-100]}, "fetch it again"),
        "page": ({WEIGHTS: b"<html>no weights here</html>"}, "no safetensors file"),
        "torn": ({WEIGHTS: (20).to_bytes(8, "little") + b"{" * 30}, "broken safetensors header"),
        "old": ({"pytorch_model.bin": b"x"}, "save_pretrained"),
        "part": ({INDEX: b'{"weight_map": {"a": "b.safetensors"}}'}, "1 of 1 files"),
        "outside": ({INDEX: b'{"weight_map": {"a": "../config.json"}}'}, "1 of 1 files"),
        "no map": ({INDEX: b"{}"}, "weight_map"),
        "no json": ({INDEX: b"{"}, "no JSON"),
    }
    for name, (files, words) in broken.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.json").write_text(config)
        for file, data in files.items():
            (folder / file).write_bytes(data)
        _refused(folder, words)
    with pytest.raises(BadInput, match="no folder"):
        read_directory(tmp_path / "none")
    with pytest.raises(BadInput, match=r"config\.json"):
        read_directory(tmp_path)
    (tmp_path / "config.json").write_text(
        json.dumps(json.loads(config) | {"quantization_config": {"quant_method": "fp8"}})
    )
    with pytest.raises(BadInput, match=r"quantized weights .fp8."):
        read_directory(tmp_path)


def test_options_that_do_not_go_together_are_refused(llama: Path, tmp_path: Path) -> None:
    _refused(llama, "not empty", save_weights=str(llama))
    _refused(llama, "factory", factory="own.module:make")
    with pytest.raises(BadInput, match="give its folder"):
        check_weights(tiny_order("dp=1", save_weights=str(tmp_path / "new")))
    (tmp_path / "file").touch()
    _refused(llama, "cannot be written", save_weights=str(tmp_path / "file" / "below"))
    check_weights(_order(llama, save_weights=str(tmp_path / "new" / "one")))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"vocab_size": 80}, "vocab_size 64"),
        ({"intermediate_size": 32}, "other layers"),
        ({"rms_norm_eps": 0.1}, "norm_eps"),
    ],
)
def test_a_folder_of_another_model_is_refused(change: dict[str, Any], words: str, llama: Path) -> None:
    config = json.loads((llama / "config.json").read_text()) | change
    order = tiny_order("dp=1", config=config, weights=str(llama))
    with pytest.raises(BadInput, match=words):
        check_weights(order)


def test_a_family_without_known_names_is_refused() -> None:
    model = read_directory_model(
        {"model_type": "resnet", "embedding_size": 8, "hidden_sizes": [16], "depths": [1]}
    )
    with pytest.raises(BadInput, match=r"resnet have no known names.*llama"):
        naming_of(model)


def read_directory_model(config: dict[str, Any]) -> Any:
    """The model of a config."""
    from cost_models.readers import read_model

    return read_model(config, name="tiny")


def test_files_of_the_bare_model_have_shorter_names(tmp_path: Path) -> None:
    library = library_model(FAMILIES["gpt2"], 2)
    library.transformer.save_pretrained(tmp_path)
    assert "wte.weight" in read_header(tmp_path / WEIGHTS)
    masks = {f"h.{i}.attn.bias": torch.ones(1, 1, 8, 8) for i in range(4)}  # as the released files have
    save_file(load_file(tmp_path / WEIGHTS) | masks, tmp_path / WEIGHTS)
    chunk, _ = chunk_of(tmp_path)
    ids = torch.randint(3, 60, (2, 16))
    assert (chunk(ids) - library(ids).logits).abs().max() < 1e-5


def test_experts_together_or_apart_are_the_same(tmp_path: Path) -> None:
    library = library_model(FAMILIES["mixtral"], 2)
    library.save_pretrained(tmp_path)
    apart, _ = chunk_of(tmp_path)
    state = {key: value.clone() for key, value in library.state_dict().items()}
    assert any(key.endswith("experts.gate_up_proj") for key in state)
    save_file(state, tmp_path / WEIGHTS)
    together, _ = chunk_of(tmp_path)
    found = dict(together.named_parameters())
    assert all(torch.equal(parameter, found[name]) for name, parameter in apart.named_parameters())


def test_nothing_is_drawn_where_values_come_later() -> None:
    model = read_directory_model(dict(FAMILIES["mixtral"]))
    given = build_chunk(model, whole(model), BuildOptions(values=GIVEN))
    assert all(not parameter.any() for parameter in given.parameters())
    promised = build_chunk(model, whole(model), BuildOptions(values=PROMISED))
    assert all(parameter.is_meta for parameter in promised.parameters())
