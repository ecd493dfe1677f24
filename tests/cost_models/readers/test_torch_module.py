"""What the library's own module says: exact counts, layers by structure, costs from a run without memory."""

import json

import pytest

pytest.importorskip("transformers")

from cost_models.errors import InvalidModel
from cost_models.layer_walk import Dropped, saved_tensors
from cost_models.operators import Attention, GroupedLinear, Traced
from cost_models.operators.base import Shard, Style
from cost_models.readers import FAMILIES, read_model
from cost_models.readers.torch_module import read_transformers
from cost_models.specs.counts import count_parameters, forward_flops_per_token
from cost_models.specs.model import Role
from planner.validation.oracle import differences, oracle_rows

ROWS = [row for row in oracle_rows() if "model_type" in row.config]
SMALL = {
    "openai-gpt causal-lm",
    "whisper causal-lm",
    "trocr causal-lm",
    "modernbert-decoder causal-lm",
    "git causal-lm",
    "zaya causal-lm",
    "jetmoe causal-lm",
    "mllama causal-lm",
    "moss_transcribe_diarize causal-lm",
    "bit image-classification",
    "cvt image-classification",
    "focalnet image-classification",
    "regnet image-classification",
    "segformer image-classification",
    "swiftformer image-classification",
    "shieldgemma2 image-classification",
    "fnet masked-lm",
    "squeezebert masked-lm",
    "yoso masked-lm",
    "yolos object-detection",
    "fsmt seq2seq-lm",
    "led seq2seq-lm",
    "t5gemma seq2seq-lm",
    "voxtral seq2seq-lm",
}
LOOPED = {"inkling2_loop", "d_fine", "deimv2", "pp_doclayout_v3", "pp_doclayout_v4", "rt_detr"}
"""Layers that run more often than they are stored; the rows list them as stored."""

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "tie_word_embeddings": True,
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PLANNER_CACHE_DIR", str(tmp_path))


def counted(row) -> tuple[str, ...]:
    """Differences from the row; layers that are looped over are compared in count only."""
    looped = any(row.model_type.startswith(each) for each in LOOPED)
    found = differences(row, read_transformers(row.config, name=row.name))
    return tuple(each for each in found if not (looped and each.startswith("layers")))


@pytest.mark.parametrize(
    "row",
    [row for row in ROWS if row.name in SMALL and "written" in row.form],
    ids=lambda row: row.name,
)
def test_counts_equal_the_built_model(row):
    assert counted(row) == ()


# rwkv's recurrence is walked step by step, which takes 15 s a row; it is counted by `make matrix`.
SLOW_FAMILIES = ("rwkv",)


def marked(row):
    return pytest.param(
        row, marks=pytest.mark.matrix if row.model_type in SLOW_FAMILIES else pytest.mark.slow
    )


@pytest.mark.parametrize(
    "row",
    [marked(row) for row in ROWS if row.model_type not in FAMILIES],
    ids=lambda row: f"{row.name} {row.form}",
)
def test_every_family_without_a_reader_is_exact(row):
    assert counted(row) == ()


EXACT_FLOPS = (
    "llama",
    "mistral",
    "mixtral",
    "qwen3",
    "gemma2",
    "gemma3_text",
    "gpt2",
    "bloom",
    "falcon",
    "olmo2",
)
EXACT_FLOPS += (
    "stablelm",
    "starcoder2",
    "gptj",
    "exaone4",
    "bert",
    "roberta",
    "albert",
    "bart",
    "t5",
    "pegasus",
)
EXACT_FLOPS += ("vit", "swin", "convnext", "resnet")


@pytest.mark.parametrize("family", EXACT_FLOPS)
def test_a_plain_family_and_the_built_model_agree(family):
    rows = [row for row in ROWS if row.model_type == family]
    row = max(rows, key=lambda row: ("written" in row.form, len(row.config)))
    plain, built = (read_model(row.config, reader=reader) for reader in ("plain", "transformers"))
    assert plain.reader == "huggingface" and built.reader == "transformers"
    assert count_parameters(plain).parameters == count_parameters(built).parameters
    assert count_parameters(plain).active == count_parameters(built).active
    assert forward_flops_per_token(built, 1024) == pytest.approx(
        forward_flops_per_token(plain, 1024), rel=1e-12
    )


def test_what_a_layer_keeps_is_what_autograd_keeps():
    model = read_transformers(LLAMA)
    block = next(layer for layer in model.layers if layer.role is Role.BLOCK)
    assert block.count == 16
    operators = model.kinds[block.kind].operators
    attention = next(op for op in operators if isinstance(op, Attention))
    assert (attention.heads, attention.kv_heads, attention.qk_dim, attention.causal) == (32, 8, 64, True)
    held = saved_tensors(operators, Shard(1.0, 512.0, 0.0), Style(), Dropped())
    # tokens x (20 h + 4 kv + 8 i + 4 H + 8) bytes with h 2048, kv 512, i 8192, H 32 is 55,644,160 at 512 tokens;
    # cosine and sine of the rotation, 512 x 64 x 2 x 2 = 131,072 bytes, are kept once and counted with the layer.
    assert sum(size for _, size in held.values()) == 55_644_160 + 131_072


def test_experts_are_found_by_structure():
    row = next(row for row in ROWS if row.model_type == "zaya" and "written" in row.form)
    model = read_transformers(row.config)
    grouped = [op for kind in model.kinds.values() for op in kind.operators if isinstance(op, GroupedLinear)]
    assert {(op.experts, op.top_k) for op in grouped} == {(16, 1)}
    assert model.num_experts == 16 and model.num_experts_per_token == 1


def test_active_parameters_are_refused_where_the_router_says_nothing():
    config = {
        "model_type": "deepseek_v2",
        "architectures": ["DeepseekV2ForCausalLM"],
        "num_experts_per_tok": None,
        "num_hidden_layers": 2,
    }
    with pytest.raises(InvalidModel, match="num_experts_per_tok"):
        read_transformers(config)


def test_a_head_of_its_own_that_the_class_ties_is_refused():
    config = {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "tie_word_embeddings": False,
    }
    with pytest.raises(InvalidModel, match="tie_word_embeddings is false"):
        read_transformers(config)


def test_keys_and_classes_that_were_assumed_are_listed():
    model = read_transformers({"model_type": "whisper", "d_model": 192})
    assumed = {each.key: each for each in model.assumed}
    assert "d_model" not in assumed
    assert assumed["encoder_layers"].changes_parameters
    assert not assumed["activation_function"].changes_parameters
    assert assumed["architectures"].value == "WhisperForCausalLM"


def test_work_that_was_not_traced_is_estimated_and_says_so():
    row = next(row for row in ROWS if row.model_type == "jetmoe" and "written" in row.form)
    model = read_transformers(row.config)
    note = next(each for each in model.assumed if each.key.startswith("costs of"))
    assert "not traced" in note.value and not note.changes_parameters
    work = next(op for op in model.kinds["JetMoeDecoderLayer"].operators if isinstance(op, Traced))
    assert work.flops.linear == 2.0 * work.weights


def test_a_tower_that_text_does_not_reach_runs_apart():
    row = next(row for row in ROWS if row.model_type == "voxtral" and "written" in row.form)
    model = read_transformers(row.config)
    tower = next(stack for stack in model.stacks if "audio_tower" in stack.name)
    assert tower.positions == 1500  # 30 s of audio: 3,000 frames, halved by the second convolution
    assert not any("audio" in each.key and "costs" in each.key for each in model.assumed)


def test_a_model_survives_its_own_json():
    row = next(row for row in ROWS if row.model_type == "led" and "written" in row.form)
    model = read_transformers(row.config)
    assert read_model(json.loads(model.model_dump_json())) == model
