"""Multi-token-prediction layers: what they read and predict, and that they compute what the library's do."""

import pytest
import torch
from torch import Tensor, nn

from cost_models.readers import read_model
from cost_models.specs.model import Role
from planner.executor.model.build import build_chunk, whole
from planner.executor.model.chunk import ChunkModule
from planner.executor.model.options import BuildOptions
from planner.executor.model.prediction import packed, unpacked
from planner.executor.weights.families import PREDICTION
from planner.executor.weights.names import naming_of
from tests.planner.executor.model.configs import CASES, Config

CONFIG: Config = CASES["deepseek v3"] | {"num_nextn_predict_layers": 2}
POSITIONS, HIDDEN = 16, 64


def _chunk(weight: float = 0.5) -> ChunkModule:
    model = read_model(CONFIG, name="deepseek")
    return build_chunk(model, whole(model), BuildOptions(train_mtp=True, mtp_weight=weight))


def test_the_second_layer_reads_two_tokens_later_and_predicts_the_third() -> None:
    ids = torch.arange(5).unsqueeze(0)
    wanted = unpacked(packed(ids, ids + 1, 2), 2)
    assert wanted.targets.tolist() == [[1, 2, 3, 4, 5]]
    # At position 0 the layers read tokens 1 and 2, and are asked for 2 and 3; the end has no target.
    assert [each.tolist() for each in wanted.ids] == [[[1, 2, 3, 4, 0]], [[2, 3, 4, 0, 0]]]
    assert [each.tolist() for each in wanted.later] == [[[2, 3, 4, 5, -100]], [[3, 4, 5, -100, -100]]]
    assert packed(ids, ids + 1, 0).tolist() == [[1, 2, 3, 4, 5]]


def test_the_loss_is_the_models_own_and_a_share_of_the_predictions_mean() -> None:
    ids = torch.randint(64, (2, POSITIONS))
    targets = torch.randint(64, (2, POSITIONS))
    losses = [_chunk(weight)(ids, packed(ids, targets, 2)).item() for weight in (0.0, 0.5, 1.0)]
    model = read_model(CONFIG, name="deepseek")
    plain = build_chunk(model, whole(model), BuildOptions())
    assert losses[0] == pytest.approx(plain(ids, targets).item(), rel=1e-6)
    assert losses[2] - losses[1] == pytest.approx(losses[1] - losses[0], rel=1e-4)
    # Untrained, every loss is about ln 64 a position: 15 and 14 of 16 positions have a target one and two later.
    assert (losses[2] - losses[0]) / losses[0] == pytest.approx((15 + 14) / 2 / 16, rel=0.02)


def test_table_and_head_are_the_models_own() -> None:
    chunk = _chunk()
    layers = list(chunk.layers.values())
    table = layers[0].get_parameter("embedding.table")
    heads = [layer.get_parameter("logits.weight") for layer in layers[3:]]
    assert all(layer.get_parameter("mtp_embedding.table") is table for layer in layers[3:5])
    assert all(head is heads[0] for head in heads)


def test_a_layer_computes_what_the_librarys_does() -> None:
    pytest.importorskip("transformers")
    from transformers import DeepseekV3Config
    from transformers.modeling_layers import MtpLayer
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as library

    chunk = _chunk()
    torch.manual_seed(0)
    config = DeepseekV3Config(**{key: value for key, value in CONFIG.items() if key != "model_type"})
    config._attn_implementation = "eager"
    theirs = MtpLayer(config, library.DeepseekV3DecoderLayer, library.DeepseekV3RMSNorm, layer_idx=1).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.1 + (parameter.dim() == 1))
    _copy(chunk, theirs)
    hidden, ids = torch.randn(2, POSITIONS, HIDDEN), torch.randint(64, (2, POSITIONS))
    _, found = chunk.layers["3"](hidden, ids)
    table = chunk.get_parameter("layers.0.embedding.table")
    positions = torch.arange(POSITIONS).unsqueeze(0)
    mask = torch.full((POSITIONS, POSITIONS), float("-inf")).triu(1).view(1, 1, POSITIONS, POSITIONS)
    turns = library.DeepseekV3RotaryEmbedding(config)(hidden, positions)
    expected: Tensor = theirs(table[ids], hidden, turns, mask, positions, None)
    assert (found - expected).abs().max() < 1e-5
    assert expected.abs().max() > 1.0


def _copy(chunk: ChunkModule, theirs: nn.Module) -> None:
    """The library's weights into our first prediction layer, whose block is of the kind of the model's second."""
    model = read_model(CONFIG, name="deepseek")
    assert [layer.role for layer in model.layers[:4]][-1] is Role.MTP
    named = {name: parameter for name, parameter in chunk.named_parameters() if name.startswith("layers.3.")}
    naming, state = naming_of(model), theirs.state_dict()
    own = {name: name for name in PREDICTION.values()} | {"shared_head.norm": "post_norm"}
    with torch.no_grad():
        for name, parameter in named.items():
            if name.split(".")[2] in ("mtp_embedding", "logits"):
                continue
            source = naming.source(name, tuple(parameter.shape))
            assert source.key.startswith("model.layers.2.")
            key = source.key.removeprefix("model.layers.2.")
            tops = [top for top in own if key.startswith(f"{top}.")]
            stored = state[key.replace(tops[0], own[tops[0]])] if tops else _of_block(state, key)
            for cut in source.cuts((0,) * parameter.dim(), tuple(parameter.shape)):
                tensor = stored[int(cut.key.split(".")[5])] if source.layout == "expert" else stored
                parameter[cut.part].copy_(cut.to_part(tensor[cut.stored]))


def _of_block(state: dict[str, Tensor], key: str) -> Tensor:
    """A tensor of the library's own module, where the experts of a layer are together [E, features, in]."""
    if ".experts." not in key:
        return state[f"mtp_block.{key}"]
    if "down_proj" in key:
        return state["mtp_block.mlp.experts.down_proj"]
    both = state["mtp_block.mlp.experts.gate_up_proj"].chunk(2, 1)
    return both["up_proj" in key]
