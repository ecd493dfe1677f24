"""Mamba's scan by channel: parameters, FLOPs and what it keeps, worked by hand."""

from cost_models.operators import SelectiveScan
from cost_models.operators.base import Phase, Shard, Style

SCAN = SelectiveScan(name="scan", inputs=("u", "steps", "mixing"), channels=1536, state=16)
AT = Shard(sequences=2.0, seq_len=4096.0, context_len=0.0)


def test_parameters_are_a_matrix_and_a_vector():
    # A: 1536 x 16 = 24,576; D: 1,536 (Mamba-130m's mixer)
    assert [group.elements for group in SCAN.parameters()] == [24_576, 1_536]


def test_flops_are_nine_per_token_channel_and_state():
    # 9 x 2 x 4096 x 1536 x 16 = 1,811,939,328
    assert SCAN.model_flops(AT) == 1_811_939_328
    forward = next(kernel for kernel in SCAN.kernels(AT, Style()) if kernel.phase is Phase.FORWARD)
    assert forward.flops == 1_811_939_328
    assert forward.fp32


def test_it_keeps_channels_steps_mixing_and_states_between_chunks():
    # tokens 8192: channels and steps 8192 x 1536 each; B and C 8192 x 2 x 16;
    # states 8192 / 2048 chunks x 1536 x 2 x 16 = 196,608
    kept = {tensor.id: tensor.elements for tensor in SCAN.saved(AT, Style())}
    assert kept == {
        "u": 12_582_912,
        "steps": 12_582_912,
        "mixing": 262_144,
        "scan.states": 196_608,
    }


def test_tensor_parallel_ranks_divide_the_channels_but_hold_all_of_b_and_c():
    half = Shard(sequences=2.0, seq_len=4096.0, context_len=0.0, tp=2)
    whole = {tensor.id: tensor.elements for tensor in SCAN.saved(AT, Style())}
    kept = {tensor.id: tensor.elements for tensor in SCAN.saved(half, Style())}
    assert kept["u"] == whole["u"] / 2
    assert kept["mixing"] == whole["mixing"]
    assert SCAN.kernels(half, Style())[0].flops == SCAN.kernels(AT, Style())[0].flops / 2
