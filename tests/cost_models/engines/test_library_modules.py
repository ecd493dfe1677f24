"""`engine.modules=transformers`: the torch engines price what the library's own modules keep."""

import pytest

from cost_models.layer_walk import walk_layer
from cost_models.operators.base import Shard

AT = Shard(sequences=2.0, seq_len=1024.0, context_len=0.0)


def kept(situation, kind: str) -> float:
    style = situation.engine.style(situation.job, "ring")
    return float(walk_layer(situation.model.kinds[kind], AT, style, ()).base.saved_bytes)


@pytest.fixture
def bytes_of(make_situation):
    def measured(model, kind, **options):
        job = {"seq_len": 1024, "global_batch": 8, "engine": "fsdp2"}
        settings = {f"engine.{key}": value for key, value in options.items()}
        return kept(make_situation(model, "dgx-h100", 8, **job, options=settings), kind)

    return measured


def test_a_norm_keeps_an_fp32_copy_of_its_input(bytes_of):
    # Two norms of width 2048 over 2,048 tokens: 4 bytes of copy and 2 of the normalised tensor, which the fused kind
    # makes again; it keeps the 2-byte input, and the linears behind both keep 2 bytes of its output.
    fused, library = (bytes_of("llama-3.2-1b", "dense", modules=each) for each in ("fused", "transformers"))
    assert library - fused == 2 * 2048 * 2048 * (4 + 2 - 2)


def test_unfused_attention_repeats_keys_and_values(bytes_of):
    # 32 heads instead of 8, of 64 features, for keys and for values
    options = {"attention": "unfused"}
    fused, library = (
        bytes_of("llama-3.2-1b", "dense", modules=each, **options) for each in ("fused", "transformers")
    )
    norms = 2 * 2048 * 2048 * (4 + 2 - 2)
    assert library - fused == norms + 2 * 2048 * (32 - 8) * 64 * 2


def test_a_loop_over_experts_keeps_more_than_a_grouped_product(bytes_of):
    loop, grouped = (
        bytes_of("mixtral-8x7b", "moe", modules="transformers", grouped_experts=each)
        for each in (False, True)
    )
    # 2 copies of 2,048 tokens: one more of 4096 features in bf16, one index less, and no ends of 8 experts
    assert loop - grouped == 2 * 2048 * (4096 * 2 - 8) - 8 * 4


def test_compiled_modules_are_fused_whoever_wrote_them(bytes_of):
    compiled = [
        bytes_of("llama-3.2-1b", "dense", modules=each, compile=True) for each in ("fused", "transformers")
    ]
    assert compiled[0] == compiled[1]


def test_in_fp32_no_copy_of_the_softmax_is_kept(make_situation):
    job = {"seq_len": 1024, "global_batch": 8, "engine": "ddp", "options": {"engine.attention": "unfused"}}
    bf16, fp32 = (
        make_situation("llama-3.2-1b", "dgx-h100", 8, **job, precision=precision)
        for precision in ("bf16", "fp32")
    )
    assert bf16.engine.style(bf16.job, "ring").softmax_fp32_copy
    assert not fp32.engine.style(fp32.job, "ring").softmax_fp32_copy
