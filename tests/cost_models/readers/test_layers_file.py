"""Layers files: documented examples count as computed by hand; mistakes are named with their place."""

import json
import re
from pathlib import Path

import pytest

from cost_models.errors import InvalidModel
from cost_models.readers import load_model, read_model
from cost_models.specs.counts import count_parameters, forward_flops, layer_parameters
from cost_models.specs.model import Role

DOCS = Path(__file__).parents[3] / "docs"
SMALL = {
    "layers_file": 1,
    "hidden_size": 64,
    "vocab_size": 100,
    "layers": [{"kind": "a", "count": 2, "attention": {"heads": 4, "head_dim": 16}, "mlp": {"width": 128}}],
}


def changed(**keys):
    return {**SMALL, **keys}


def block(**keys):
    return changed(layers=[{"kind": "a", **keys}])


def test_the_documented_json_example():
    model = load_model(str(DOCS / "examples" / "hybrid-moe.json"))
    blocks = [(layer.kind, layer.count) for layer in model.layers if layer.role is Role.BLOCK]
    assert blocks == [("dense", 2), ("window", 3), ("mamba", 2), ("latent", 1), ("window", 3)]
    attention = 2048 * (2048 + 2 * 512) + 2048 * 2048
    norms = 2 * 2048
    assert layer_parameters(model.kinds["dense"]) == attention + 3 * 2048 * 8192 + norms
    # 64 experts and a shared one of 3 x 2048 x 1024, router 2048 x 64, q and k norms of 128.
    moe = 65 * 3 * 2048 * 1024 + 2048 * 64
    assert layer_parameters(model.kinds["window"]) == attention + 256 + moe + norms
    # z and x of 4096, B and C of 1024, dt of 64; convolution over 6144; A, D, dt bias; gated norm; out.
    mamba = 2048 * (2 * 4096 + 2 * 1024 + 64) + 6144 * 5 + 3 * 64 + 4096 + 4096 * 2048 + 2048
    assert layer_parameters(model.kinds["mamba"]) == mamba
    latent = 2048 * 768 + 768 + 768 * 16 * 192 + 2048 * 576 + 512 + 512 * 16 * 256 + 16 * 128 * 2048
    assert layer_parameters(model.kinds["latent"]) == latent + 3 * 2048 * 8192 + norms
    counts = count_parameters(model)
    # 60 of 64 experts idle in each of the 6 routed layers.
    assert counts.parameters - counts.active == 6 * 60 * 3 * 2048 * 1024


def test_the_documented_toml_example_stores_shared_weights_once():
    model = load_model(str(DOCS / "examples" / "shared-encoder.toml"))
    layer = 4 * (768 * 768 + 768) + 2 * 768 * 3072 + 3072 + 768 + 2 * 2 * 768
    ends = 30_000 * 768 + 512 * 768 + 2 * 768
    counts = count_parameters(model)
    assert layer_parameters(model.kinds["block"]) == layer
    assert counts.parameters == layer + ends
    # ... and runs them twelve times.
    assert counts.matmul == 12 * (4 * 768 * 768 + 2 * 768 * 3072) + 30_000 * 768
    assert forward_flops(model, 512) == 512 * (2 * counts.matmul + 12 * 2 * 12 * 128 * 512)


def test_every_json_example_of_the_document_reads():
    text = (DOCS / "models.md").read_text(encoding="utf-8")
    found = re.findall(r"```json\n(.*?)```", text, flags=re.DOTALL)
    assert found
    for each in found:
        assert read_model(json.loads(each)).num_blocks == 24


def test_the_document_names_every_key_of_every_part():
    from cost_models.readers import layers_file

    text = (DOCS / "models.md").read_text(encoding="utf-8")
    keys = set(layers_file.LayersFile.model_fields) | set(layers_file.BlockEntry.model_fields)
    for shape in ("AttentionShape", "LatentAttentionShape", "MambaShape", "MlpShape", "MoeShape"):
        keys |= set(getattr(layers_file, shape).model_fields)
    assert {key for key in keys if f"`{key}`" not in text} == set()


def test_a_whole_specification_is_a_layers_file():
    model = load_model("llama-3.2-1b")
    assert read_model(json.loads(model.model_dump_json())) == model


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (changed(hidden_size=0), ("hidden_size", "greater than or equal to 1")),
        (changed(hidden_size=-4), ("hidden_size",)),
        (changed(hidden_size=10**12), ("hidden_size",)),
        (changed(hidden_size="64"), ("hidden_size",)),
        (changed(hidden_size=True), ("hidden_size",)),
        (changed(hiden_size=64), ("hiden_size",)),
        (changed(layers=[]), ("layers",)),
        (changed(layers_file=2), ("layers_file",)),
        ({"layers": SMALL["layers"]}, ("layers_file: 1",)),
        (block(), ("neither a token mixer nor a feed-forward", "entry 0")),
        (block(count=0, mlp={"width": 8}), ("layers/0/count",)),
        (block(count=True, mlp={"width": 8}), ("layers/0/count",)),
        (block(attention={"heads": 4, "kv_heads": 3, "head_dim": 8}), ("heads 4", "kv_heads 3")),
        (block(moe={"experts": 4, "top_k": 5, "width": 8}), ("top_k 5", "4 experts")),
        (block(mamba={"heads": 4, "head_dim": 8, "state": 8, "groups": 3}), ("heads 4", "groups 3")),
        (block(mlp={"width": 8}, moe={"experts": 4, "top_k": 1, "width": 8}), ("at most one",)),
        (changed(layers=[{"kind": "head", "mlp": {"width": 8}}]), ("named head", "rename")),
        (
            changed(layers=[{"kind": "a", "mlp": {"width": 8}}, {"kind": "a", "mlp": {"width": 9}}]),
            ("entry 1", "differently"),
        ),
    ],
)
def test_mistakes_are_named_with_their_place(source, words):
    with pytest.raises(InvalidModel) as caught:
        read_model(source)
    assert all(word in caught.value.detail for word in words), caught.value.detail


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("in_features", 0),
        ("in_features", -8),
        ("in_features", 10**12),
        ("parts/1/features", 0),
        ("parts/1/max_shards", 10**29),
    ],
)
def test_sizes_of_a_whole_specification_are_checked(key, value):
    data = json.loads(load_model("llama-3.2-1b").model_dump_json())
    linear = next(op for op in data["kinds"]["dense"]["operators"] if op["family"] == "linear")
    *inner, last = key.split("/")
    if inner:
        linear["parts"][int(inner[1])][last] = value
    else:
        linear[key] = value
    with pytest.raises(InvalidModel, match=f"kind dense, operator qkv: {key} is {value}"):
        read_model(data)
