"""Encoders, encoder-decoders, state-space and image models: what runs how often, and what contradicts itself."""

import pytest

from cost_models.errors import InvalidModel
from cost_models.readers import read_model
from cost_models.specs.counts import count_parameters, forward_flops, layer_parameters


@pytest.mark.parametrize(
    ("model_type", "products"),
    [
        # Published multiply-adds in 10^9 of the 224-pixel base or tiny sizes with 1,000 classes: ViT-B/16 17.6
        # (Touvron et al. 2021, table 5), Swin-T 4.5 (Liu et al. 2021, table 1), ConvNeXt-T 4.5 (Liu et al. 2022).
        ("vit", 17.6),
        ("swin", 4.5),
        ("convnext", 4.5),
    ],
)
def test_image_models_cost_what_is_published(model_type, products):
    model = read_model({"model_type": model_type, "num_labels": 1000})
    assert forward_flops(model) / 2e9 == pytest.approx(products, abs=0.06)


def test_larger_images_have_more_patches():
    model = read_model({"model_type": "vit"})
    assert [stack.patches(224) for stack in model.stacks] == [197]
    assert [stack.patches(384) for stack in model.stacks] == [577]
    assert forward_flops(model, image_size=384) > 577 / 197 * forward_flops(model)


def test_albert_runs_its_layer_twelve_times():
    model = read_model({"model_type": "albert"})
    one = read_model({"model_type": "albert", "num_hidden_layers": 1})
    layer = forward_flops(model, 512) - forward_flops(one, 512)
    # 11 more layers: 2 x 512 x (4 x 4096^2 + 2 x 4096 x 16384) + 4 x 512^2 x 4096 each
    assert layer == 11 * (2 * 512 * (4 * 4096**2 + 2 * 4096 * 16384) + 4 * 512**2 * 4096)
    assert count_parameters(model).parameters == count_parameters(one).parameters


def test_zamba2_runs_one_adapter_of_nine():
    model = read_model({"model_type": "zamba2"})
    adapters = [op for op in model.kinds["hybrid_0"].operators if op.name == "mlp_adapter"]
    assert [op.choices for op in adapters] == [9]
    at = 2 * 128 * (2560 + 2 * 10240)
    assert sum(op.model_flops(_one_token()) for op in adapters) == at


def _one_token():
    from cost_models.operators.base import Shard

    return Shard(sequences=1.0, seq_len=1.0, context_len=0.0)


@pytest.mark.parametrize(
    ("config", "pointer"),
    [
        ({"model_type": "mamba", "intermediate_size": 1000}, "/intermediate_size"),
        ({"model_type": "mamba2", "num_heads": 100}, "/num_heads"),
        ({"model_type": "jamba", "attn_layer_offset": 8}, "/attn_layer_offset"),
        ({"model_type": "bamba", "attn_layer_indices": [40]}, "/attn_layer_indices"),
        ({"model_type": "zamba2", "num_hidden_layers": 10}, "/layers_block_type"),
        ({"model_type": "vit", "image_size": [224, 192]}, "/image_size"),
        ({"model_type": "vit", "patch_size": 300}, "/patch_size"),
        ({"model_type": "swin", "depths": [2, 2]}, "/num_heads"),
        ({"model_type": "convnext", "depths": [2, 2]}, "/depths"),
        ({"model_type": "marian", "decoder_vocab_size": 9}, "/decoder_vocab_size"),
        ({"model_type": "bart", "encoder_attention_heads": 7}, "/d_model"),
        ({"model_type": "albert", "num_hidden_groups": 20}, "/num_hidden_groups"),
        ({"model_type": "zamba", "layer_types": ["attention"] * 76}, "/layer_types/0"),
        ({"model_type": "granitemoehybrid", "layer_types": ["hybrid"] * 32}, "/layer_types/0"),
        ({"model_type": "roberta", "add_cross_attention": True}, "/add_cross_attention"),
    ],
)
def test_contradictions_are_named(config, pointer):
    with pytest.raises(InvalidModel) as error:
        read_model(config)
    assert error.value.pointer == pointer


def test_a_decoder_alone_keeps_its_cross_attention_but_never_runs_it():
    pair = read_model({"model_type": "bart"})
    alone = read_model({"model_type": "bart", "architectures": ["BartForCausalLM"]})
    assert [stack.name for stack in alone.stacks] == ["decoder"]
    assert layer_parameters(alone.kinds["decoder"]) == layer_parameters(pair.kinds["decoder"])
    assert forward_flops(alone, 128) < forward_flops(pair, 128) / 2
