"""DeBERTa's position terms: parameters and FLOPs worked by hand."""

from cost_models.operators import DisentangledBias
from cost_models.operators.base import Phase, Shard, Style

# DeBERTa-base: 768 wide, 12 heads, 512 positions to each side, both terms, one of them with a bias
BIAS = DisentangledBias(name="scores", hidden=768, heads=12, span=512, terms=2, weights=2, biases=1)
AT = Shard(sequences=4.0, seq_len=512.0, context_len=0.0)


def test_parameters_are_the_projections():
    # 2 x 768^2 = 1,179,648 and one bias
    assert [group.elements for group in BIAS.parameters()] == [1_179_648, 768]


def test_projections_run_once_and_scores_for_every_query():
    # projections: 2 terms x 2 x 1024 x 768^2 = 2,415,919,104
    # scores: 2 terms x 2 x 2048 tokens x 1024 x 768 = 6,442,450,944
    assert BIAS.model_flops(AT) == 2_415_919_104 + 6_442_450_944
    forward = sum(kernel.flops for kernel in BIAS.kernels(AT, Style()) if kernel.phase is Phase.FORWARD)
    assert forward == BIAS.model_flops(AT)


def test_short_sequences_use_a_part_of_the_table():
    short = Shard(sequences=4.0, seq_len=128.0, context_len=0.0)
    assert BIAS.model_flops(short) == 2 * 2 * 256 * 768**2 + 2 * 2 * 512 * 256 * 768


def test_shared_projections_have_no_parameters_of_their_own():
    shared = BIAS.model_copy(update={"weights": 0, "biases": 0})
    assert sum(group.elements for group in shared.parameters()) == 0
    assert shared.model_flops(AT) == BIAS.model_flops(AT)
