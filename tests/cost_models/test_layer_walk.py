"""Saved tensors of layers: unions by id, recompute scopes, unfused attention, sequence parallelism."""

import pytest

from cost_models.layer_walk import Dropped, boundary_bytes, saved_tensors, walk_layer
from cost_models.operators import Attention
from cost_models.operators.base import Shard, Style
from cost_models.units import GIB


def test_unfused_fp32_softmax_is_32_gib():
    """16 sequences x 32 heads x 4096^2 x 4 B = 32.00 GiB, one failed request of a user (7B, flash attention off)."""
    attention = Attention(name="core", inputs=("q", "k", "v"), heads=32, kv_heads=32, qk_dim=128, v_dim=128)
    style = Style(flash_attention=False, softmax_fp32_copy=True)
    saved = saved_tensors([attention], Shard(16.0, 4096.0, 4096.0), style, Dropped())
    assert saved["core.probabilities_fp32"][1] / GIB == 32.0


def test_flash_attention_saves_no_square():
    attention = Attention(name="core", inputs=("q", "k", "v"), heads=32, kv_heads=8, qk_dim=128, v_dim=128)
    saved = saved_tensors([attention], Shard(1.0, 4096.0, 4096.0), Style(), Dropped())
    # q 32 heads, k and v 8 heads, output 32 heads of 128 in bf16; log-sum-exp 32 heads in fp32
    expected = 4096 * (2 * 128 * (32 + 8 + 8 + 32) + 4 * 32)
    assert sum(size for _, size in saved.values()) == expected


def test_llama_layer_saves_what_megatron_saves(make_situation):
    """Per token, over t ranks: norm and linear inputs 8 h / t, q k v and output, gate, up and
    their product; statistics in fp32 (peers' formulas for SwiGLU, RMSNorm, flash attention). Values are a view of
    the fused projection, so queries and keys stay alive before their rotation too (q + kv)."""
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=4096, global_batch=64)
    h, q, kv, f, t = 4096, 4096, 1024, 14336, 4
    at = Shard(1.0, 4096.0, 4096.0, tp=4.0, sp=1.0)
    walk = walk_layer(_block(of), at, of.engine.style(of.job, "ring"), ())
    per_token = 2 * (4 * h + 2 * q + 2 * kv + (q + kv) + 3 * f) / t + 4 * 32 / t + 2 * 4 / t
    assert float(walk.base.saved_bytes) == pytest.approx(4096 * per_token, rel=1e-12)


def test_full_recompute_keeps_the_boundary_only(make_situation):
    of = make_situation("llama-3.1-8b", "dgx-h100", 8, seq_len=4096, global_batch=64)
    at, style = Shard(2.0, 4096.0, 4096.0, tp=2.0, sp=1.0), of.engine.style(of.job, "ring")
    walk = walk_layer(_block(of), at, style, ())
    assert float(walk.full.saved_bytes) == 2 * 4096 * 4096 * 2 / 2  # tokens x hidden x bf16 / tp
    assert float(walk.full.saved_bytes) == float(boundary_bytes(_block(of), at, style))
    assert walk.full.transient_bytes >= walk.base.saved_bytes


def test_core_attention_recompute_drops_the_probabilities(make_situation):
    """Recomputing unfused attention drops 5 a s^2 b bytes with dropout (Korthikanti 2022, eq. 6)."""
    options = {"engine.attention": "unfused"}
    of = make_situation("gpt3-175b", "dgx-a100", 1536, seq_len=2048, global_batch=1536, options=options)
    at, style = Shard(1.0, 2048.0, 2048.0, tp=8.0, sp=1.0), of.engine.style(of.job, "ring")
    none = walk_layer(_block(of), at, style, ()).base.saved_bytes
    selective = walk_layer(_block(of), at, style, ("core_attn",)).base.saved_bytes
    assert float(none - selective) == 5 * 96 * 2048 * 2048 / 8


def test_given_up_outputs_are_dropped_although_others_read_them(make_situation):
    """mla_up_proj gives up q, k and v: 128 heads x (192 + 192 + 128) in bf16 per token."""
    of = make_situation("deepseek-v3", "dgx-h800", 2048, seq_len=4096, global_batch=15360)
    at, style = Shard(1.0, 4096.0, 4096.0), of.engine.style(of.job, "ring")
    none = walk_layer(of.model.kinds["moe"], at, style, ()).base.saved_bytes
    dropped = walk_layer(of.model.kinds["moe"], at, style, ("mla_up_proj",)).base.saved_bytes
    assert float(none - dropped) == 4096 * 128 * (192 + 192 + 128) * 2


def _block(of):
    (kind,) = {layer.kind for layer in of.model.layers if layer.role.value == "block"}
    return of.model.kinds[kind]
