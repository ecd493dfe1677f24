"""Dense decoders: which kinds of layers stand where, what they read, and what contradicts itself."""

import pytest

from cost_models.errors import InvalidModel
from cost_models.operators import Attention, Norm, Rope
from cost_models.operators.base import Shard, Style
from cost_models.readers import read_model
from cost_models.specs.counts import count_parameters, forward_flops
from cost_models.specs.model import ModelSpec, Role

NEW_FALCON = {"model_type": "falcon", "new_decoder_architecture": True}


def blocks(model: ModelSpec) -> list[str]:
    """The kind of every block in order."""
    return [layer.kind for layer in model.expanded(Role.BLOCK)]


def operator(model: ModelSpec, kind: str, name: str) -> object:
    return next(each for each in model.kinds[kind].operators if each.name == name)


def test_branches_side_by_side_read_one_norm_or_two():
    # 7B: one LayerNorm of 2 x 4544; 180B: two of 2 x 14848.
    small = read_model({"model_type": "falcon"})
    norms = [each for each in small.kinds["dense"].operators if isinstance(each, Norm)]
    assert [each.name for each in norms] == ["attn_norm"]
    assert operator(small, "dense", "qkv").inputs == operator(small, "dense", "up").inputs == ("attn_norm",)
    large = read_model({"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 71})
    assert operator(large, "dense", "up").inputs == ("mlp_norm",)
    assert operator(large, "dense", "mlp_norm").inputs == ("x",)


def test_falcon_shares_one_key_head_only_under_multi_query():
    config = {"model_type": "falcon", "num_hidden_layers": 1}
    assert read_model(config).num_kv_heads == 1
    assert read_model({**config, "multi_query": False}).num_kv_heads == 71
    assert read_model({**config, "new_decoder_architecture": True, "num_kv_heads": 1}).num_kv_heads == 1


def test_the_new_falcon_is_parallel_whatever_parallel_attn_says():
    assert count_parameters(read_model(NEW_FALCON)) == count_parameters(
        read_model({**NEW_FALCON, "parallel_attn": False})
    )


def test_an_absent_rotary_dim_is_at_most_a_head():
    # 8 heads of 32; GPTJConfig's default is 64
    rope = operator(read_model({"model_type": "gptj", "n_embd": 256, "n_head": 8}), "dense", "rope")
    assert isinstance(rope, Rope) and rope.width == 16 * 32


def test_a_window_costs_fewer_flops_than_a_full_layer():
    model = read_model({"model_type": "gemma2"})
    full, sliding = operator(model, "full", "core_attention"), operator(model, "sliding", "core_attention")
    assert isinstance(full, Attention) and isinstance(sliding, Attention)
    assert (full.window, sliding.window) == (0, 4096)
    # 13 of 26 layers: 2 x S x (S / 2 - (w - w^2 / 2S)) x 8 heads x 512 at S = 8192, w = 4096
    wide = read_model({"model_type": "gemma2", "layer_types": ["full_attention"] * 26})
    saved = 13 * 2 * 8192 * (4096 - (4096 - 4096**2 / 16384)) * 8 * 512
    assert forward_flops(wide, 8192) - forward_flops(model, 8192) == pytest.approx(saved)


def test_a_soft_cap_keeps_one_more_tensor_of_scores_outside_a_flash_kernel():
    attention = operator(read_model({"model_type": "gemma2"}), "full", "core_attention")
    assert isinstance(attention, Attention) and attention.soft_cap
    plain = attention.model_copy(update={"soft_cap": False})
    at = Shard(sequences=1.0, seq_len=512.0, context_len=0.0)

    def kept(operator: Attention, style: Style) -> float:
        return sum(float(tensor.elements) for tensor in operator.saved(at, style))

    # 8 heads x 512 x 512, as autograd keeps the tanh's output in Gemma 2 of transformers 5.24
    unfused = Style(flash_attention=False)
    assert kept(attention, unfused) - kept(plain, unfused) == 8 * 512 * 512
    flash = Style(flash_attention=True)
    assert kept(attention, flash) == kept(plain, flash)


def test_rotation_covers_a_part_of_each_head_and_some_layers_have_none():
    neox = operator(read_model({"model_type": "gpt_neox"}), "dense", "rope")
    # 64 query and 64 key heads of 96, a quarter of each rotated
    assert isinstance(neox, Rope) and neox.width == 128 * 24
    smollm = read_model({"model_type": "smollm3", "num_hidden_layers": 4})
    assert blocks(smollm) == ["rope_full"] * 3 + ["nope_full"]
    assert not any(isinstance(each, Rope) for each in smollm.kinds["nope_full"].operators)


def test_old_and_new_spellings_give_one_count():
    old = {"model_type": "bloom", "n_embed": 256, "num_hidden_layers": 3, "num_attention_heads": 4}
    new = {"model_type": "bloom", "hidden_size": 256, "n_layer": 3, "n_head": 4}
    assert count_parameters(read_model(old)) == count_parameters(read_model(new))
    listed = {"model_type": "exaone4", "num_hidden_layers": 8, "sliding_window_pattern": "LLLG"}
    counted = {**listed, "sliding_window_pattern": 4}
    assert blocks(read_model(listed)) == blocks(read_model(counted)) == (["sliding"] * 3 + ["full"]) * 2
    first = {"model_type": "exaone", "num_layers": 3, "layer_norm_epsilon": 1e-5}
    assert read_model(first).num_blocks == 3


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model_type": "bloom", "hidden_size": 64, "n_embed": 128}, "make the two agree"),
        ({**NEW_FALCON, "parallel_attn": False, "num_ln_in_parallel_attn": 1}, "parallel_attn"),
        ({"model_type": "phi", "qk_layernorm": True, "head_dim": 40}, "head_dim 40"),
        ({**NEW_FALCON, "num_kv_heads": 8}, "divisor of 71"),
        ({"model_type": "mpt", "expansion_ratio": 3}, "expansion_ratio"),
        ({"model_type": "mpt", "attn_config": {"qk_ln": True}}, "qk_ln"),
        ({"model_type": "mpt", "attn_config": 3}, "attn_config"),
        ({"model_type": "gpt_neo", "num_layers": 5}, "names 24 layers"),
        ({"model_type": "gpt_neo", "attention_types": [["global", 3]]}, "attention_types"),
        ({"model_type": "gptj", "rotary_dim": 512}, "rotary_dim 512"),
        ({"model_type": "gpt_neox", "rotary_pct": 1.5}, "at most 1"),
        ({"model_type": "gpt_neox", "hidden_size": 6145}, "not a multiple"),
        ({"model_type": "phi3", "attention_bias": True}, "attention_bias"),
        ({"model_type": "cohere2", "head_dim": 64}, "head_dim 64"),
        ({"model_type": "helium", "head_dim": 64}, "head_dim 64"),
        ({"model_type": "smollm3", "no_rope_layers": [1, 0]}, "names 2 layers"),
        ({"model_type": "exaone4", "sliding_window_pattern": "LX"}, "letters L and G"),
        ({"model_type": "olmo3", "sliding_window": None}, "sliding_window"),
        ({"model_type": "opt", "do_layer_norm_before": 1}, "true or false"),
    ],
    ids=lambda value: value if isinstance(value, str) else value["model_type"],
)
def test_sizes_that_contradict_each_other_are_refused(change, words):
    with pytest.raises(InvalidModel, match=words):
        read_model(change)
