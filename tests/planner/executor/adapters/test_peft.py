"""Adapters written by the peft library's names, shapes and formulas, and read back under any layout."""

import json
import re

import pytest
import torch
from safetensors.torch import load_file

from cost_models.errors import BadInput
from planner.executor.adapters.attach import adapters_of, attach
from planner.executor.adapters.files import (
    CONFIG_FILE,
    TENSORS_FILE,
    adapter_config,
    check_adapters,
    load_adapters,
    order_entries,
    read_adapters,
    save_adapters,
    write_adapters,
)
from planner.executor.model.options import BuildOptions
from planner.executor.step import Trainer
from tests.planner.executor.model.library import chunk_of, library_model
from tests.planner.executor.orders import LLAMA, MIXTRAL, tiny_order
from tests.planner.executor.ranks import run_ranks

GPT2 = {
    "model_type": "gpt2",
    "n_embd": 32,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 32,
    "vocab_size": 96,
}
ALPHA = 8.0
PATTERNS = (("alpha_pattern", "lora_alpha"), ("rank_pattern", "r"))


def order_of(config, strategy="", devices=1, trainable="lora:r=4", **options):
    job = {"options": {"job.trainable": trainable}}
    stated = {"lora_alpha": ALPHA, "dropout": False} | options
    return tiny_order(strategy, devices=devices, config=config, job=job, **stated)


def written(tmp_path, order):
    """Random adapters of an order, in a folder."""
    entries = order_entries(order)
    generator = torch.Generator().manual_seed(7)
    model = {}
    for entry in entries:
        for member in entry.members:
            shape = member.source.shape
            model[member.up] = torch.randn(shape, generator=generator) * 0.1
            size = width(order, member.down)
            down = (*shape[:-2], shape[-1], size) if entry.experts else (shape[-1], size)
            model[member.down] = torch.randn(down, generator=generator) * 0.1
    tensors = {key: tensor for entry in entries for key, tensor in entry.joined(model).items()}
    assert write_adapters(tmp_path, tensors, adapter_config(order, entries)) is None
    return model, tensors


def width(order, name):
    """Input features of the linear that an adapter stands beside."""
    index, linear = int(name.split(".")[1]), name.split(".")[2]
    layers = [layer for layer in order.situation.model.layers for _ in range(layer.count)]
    operators = order.situation.model.kinds[layers[index].kind].operators
    return next(op.in_features for op in operators if op.name == linear)


def test_llama_has_the_names_and_shapes_of_the_library(tmp_path):
    order = order_of(LLAMA, trainable="lora:r=4,targets=q+v+down")
    _, tensors = written(tmp_path, order)
    found = load_file(tmp_path / TENSORS_FILE)
    assert len(found) == len(tensors) == 4 * 3 * 2  # blocks, linears, matrices
    block = "base_model.model.model.layers.3."
    assert tuple(found[f"{block}self_attn.q_proj.lora_A.weight"].shape) == (4, 64)
    assert tuple(found[f"{block}mlp.down_proj.lora_A.weight"].shape) == (4, 96)
    assert tuple(found[f"{block}mlp.down_proj.lora_B.weight"].shape) == (64, 4)
    config = json.loads((tmp_path / CONFIG_FILE).read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"], config["bias"]) == ("LORA", 4, 8, "none")
    assert config["target_modules"] == ["mlp.down_proj", "self_attn.q_proj", "self_attn.v_proj"]


def merge(library, tensors, settings):
    """Every adapter merged into the weight beside which it stands, by the library's own formulas.

    Linear: W += alpha / r B A, of a Conv1D transposed. ParamWrapper: A [experts x r, in], B [out, r x experts],
    W[e, o, i] += alpha / r sum over r of B[o, r, e] A[e, r, i].
    """
    modules = dict(library.named_modules())
    for key in [key for key in tensors if key.endswith("lora_A.weight")]:
        down, up = tensors[key], tensors[key.replace("lora_A", "lora_B")]
        path = key.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        inside = next((name for name in settings["rank_pattern"] if re.search(rf"\.{name}$", path)), None)
        patterns = [settings[each].get(inside, settings[own]) for each, own in PATTERNS]
        scale = patterns[0] / patterns[1]
        module = modules[path.removesuffix(".base_layer")]
        if hasattr(module, "gate_up_proj"):
            weight = module.gate_up_proj if path.endswith(".base_layer") else module.down_proj
            experts = weight.shape[0]
            pair = up.reshape(up.shape[0], -1, experts), down.reshape(experts, -1, down.shape[-1])
            weight.data += scale * torch.einsum("axe,exi->eai", *pair)
        else:
            assert patterns[1] == down.shape[0]
            delta = scale * up @ down
            module.weight.data += delta.T if type(module).__name__ == "Conv1D" else delta


@pytest.mark.parametrize(
    ("config", "trainable"),
    [(LLAMA, "lora:r=4"), (GPT2, "lora:r=4"), (GPT2, "lora:r=2,targets=q+v"), (MIXTRAL, "lora:r=4")],
    ids=["llama", "gpt2", "gpt2-q-v", "mixtral"],
)
def test_the_library_computes_with_them_what_we_do(tmp_path, config, trainable):
    order = order_of(config, trainable=trainable)
    model, tensors = written(tmp_path, order)
    library = library_model(dict(config), seed=3)
    library.save_pretrained(tmp_path / "base")
    chunk, _ = chunk_of(tmp_path / "base")
    attach(chunk, order.situation.model, BuildOptions(), adapters_of(order))
    ids = torch.randint(3, 90, (2, 16))
    with torch.no_grad():
        before = library(ids).logits
        for name, parameter in chunk.named_parameters():
            if ".adapters." in name:
                parameter.copy_(model[name])
        merge(library, tensors, json.loads((tmp_path / CONFIG_FILE).read_text()))
        expected = library(ids).logits
        assert (expected - before).abs().max() > 1e-2
        torch.testing.assert_close(chunk(ids), expected, rtol=1e-5, atol=1e-5)


def test_every_adapter_is_read_back(tmp_path):
    for name, config in (("llama", LLAMA), ("gpt2", GPT2), ("mixtral", MIXTRAL)):
        order = order_of(config, adapters_from=str(tmp_path / name))
        model, _ = written(tmp_path / name, order)
        entries = order_entries(order)
        tensors = read_adapters(order, entries)
        found = {
            k: v for entry in entries for k, v in entry.parted(*(tensors[k] for k in entry.keys)).items()
        }
        assert found.keys() == model.keys()
        assert all(torch.equal(found[key], model[key]) for key in model)


def test_a_pair_that_the_parts_of_a_fused_linear_share_is_read():
    """The library trains one A for GPT-2's queries, keys and values; each part then has a copy of it."""
    entry = next(each for each in order_entries(order_of(GPT2)) if each.module.endswith("h.0.attn.c_attn"))
    down, up = torch.randn(4, 32), torch.randn(96, 4)
    found = entry.parted(down, up)
    assert torch.equal(found["layers.1.qkv.adapters.k.a"], down)
    assert torch.equal(found["layers.1.qkv.adapters.k.b"], up[32:64])
    with pytest.raises(BadInput, match="mixes the parts"):
        entry.parted(torch.randn(12, 32), torch.randn(96, 12))
    with pytest.raises(BadInput, match="no adapter of rank 4"):
        entry.parted(torch.randn(6, 32), torch.randn(96, 6))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"r": 8}, "rank 8, and the job 4; use job.trainable=lora:r=8"),
        ({"lora_alpha": 32}, "give --lora-alpha 32"),
        ({"use_dora": True}, "use_dora"),
        ({"peft_type": "IA3"}, "no LoRA"),
    ],
)
def test_adapters_of_another_kind_are_refused(tmp_path, change, message):
    order = order_of(LLAMA, adapters_from=str(tmp_path))
    written(tmp_path, order)
    config = json.loads((tmp_path / CONFIG_FILE).read_text())
    (tmp_path / CONFIG_FILE).write_text(json.dumps(config | change))
    with pytest.raises(BadInput, match=message):
        check_adapters(order)


def test_folders_without_adapters_and_other_targets_are_refused(tmp_path):
    with pytest.raises(BadInput, match="holds no adapters"):
        check_adapters(order_of(LLAMA, adapters_from=str(tmp_path / "none")))
    written(tmp_path, order_of(LLAMA, trainable="lora:r=4,targets=q+v"))
    with pytest.raises(
        BadInput, match="lack 40 of the job's tensors"
    ):  # k, o, gate, up, down of 4 blocks, A and B
        check_adapters(order_of(LLAMA, adapters_from=str(tmp_path)))
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="cannot be written"):
        check_adapters(order_of(LLAMA, adapters=str(tmp_path / "file")))


def test_every_layout_writes_and_reads_the_same_adapters(tmp_path):
    """One process reads what two wrote and writes the same; after a step of training they are others."""
    for name, config in (("llama", LLAMA), ("mixtral", MIXTRAL)):
        first = tmp_path / name / "first"
        base = order_of(config)
        _, expected = written(first, base)
        strategies = ("tp=2", "pp=2", "dp=2,zero=3") if config is LLAMA else ("tp=2,ep=2", "tp=2,etp=2")
        orders = [
            order_of(config, text, 2, adapters_from=str(first), adapters=str(tmp_path / name / text))
            for text in strategies
        ]
        run_ranks(read_and_write, 2, [order.to_json() for order in orders])
        for text in strategies:
            found = load_file(tmp_path / name / text / TENSORS_FILE)
            assert found.keys() == expected.keys()
            assert all(torch.equal(found[key], expected[key]) for key in expected), text


def read_and_write(rank, world, documents):
    from planner.executor.request import order_of_document

    for document in documents:
        order = order_of_document(document)
        trainer = Trainer(order, torch.device("cpu"))
        load_adapters(order, trainer)
        save_adapters(order, trainer)
