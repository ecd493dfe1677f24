"""Counts by hand, or published, of families that no built model of the data covers."""

import pytest

from cost_models.errors import InvalidModel
from cost_models.operators import AdaptiveEmbedding, AdaptiveSoftmax, Attention, Cluster, Indexer
from cost_models.operators.base import Shard
from cost_models.readers import load_model, read_model
from cost_models.specs.counts import count_parameters, forward_flops, layer_parameters
from cost_models.specs.model import Role


def test_transformer_xl_by_hand():
    model = load_model("transfo-xl-wt103")
    # Tables of 20000 x 1024, 20000 x 256, 160000 x 64 and 67735 x 16; their projections to 1024.
    tables = 20_000 * 1024 + 20_000 * 256 + 160_000 * 64 + 67_735 * 16
    projections = 1024 * (1024 + 256 + 64 + 16)
    # q, k, v, positions and output 5 x 1024^2, two biases of 16 x 64; two matrices with biases; two LayerNorms.
    layer = 5 * 1024**2 + 2 * 1024 + 2 * 1024 * 4096 + 4096 + 1024 + 2 * 2048
    assert layer_parameters(model.kinds["dense"]) == layer == 13_642_752
    without_softmax = tables + projections + 18 * layer
    assert without_softmax == 283_885_936  # what is quoted as 284M
    # The softmax adds a bias for each word, three clusters of 1024 + 1, and the first cluster's own projection.
    whole = without_softmax + 267_735 + 3 * 1025 + 1024**2
    assert count_parameters(model).parameters == whole == 285_205_322


def test_the_layers_file_of_transformer_xl_is_its_model():
    assert count_parameters(load_model("docs/examples/transfo-xl-wt103.json")).parameters == 285_205_322


def test_adaptive_ends_share_tables_and_projections():
    clusters = (Cluster(rows=100, width=8), Cluster(rows=50, width=2))
    first = AdaptiveEmbedding(name="embedding", clusters=clusters, hidden=8)
    last = AdaptiveSoftmax(name="logits", clusters=clusters, hidden=8, own_projections=(0,))
    # Tables 800 + 100, projections 64 + 16.
    assert sum(group.elements for group in first.parameters()) == 980
    tied = {group.tie for group in first.parameters()}
    own = [group.elements for group in last.parameters() if group.tie not in tied]
    # 150 biases, one further cluster of 8 + 1, the first projection.
    assert own == [150, 9, 64]
    at = Shard(sequences=1.0, seq_len=10.0, context_len=0.0)
    # 2 x 10 tokens x 8 x 8; and 2 x 10 x 8 x (8 + 101 scores).
    assert first.model_flops(at) == 1280
    assert last.model_flops(at) == 17_440


@pytest.mark.parametrize(
    ("name", "published"), [("wide-resnet-50-2", 68_883_240), ("wide-resnet-101-2", 126_886_696)]
)
def test_wide_resnets_as_published(name, published):
    assert count_parameters(load_model(name)).parameters == published


@pytest.mark.parametrize("keys", [{"width_per_group": 100}, {"width_per_group": 128, "layer_type": "basic"}])
def test_a_width_that_makes_no_bottleneck_is_refused(keys):
    with pytest.raises(InvalidModel, match="width_per_group"):
        read_model({"model_type": "resnet", **keys})


@pytest.mark.parametrize(("labels", "built"), [(91, 41_524_768), (2, 41_501_895)])
def test_detr_equals_the_built_model(labels, built):
    model = read_model({"model_type": "detr", "num_labels": labels})
    assert count_parameters(model).parameters == built
    assert [layer.stack for layer in model.expanded(Role.BLOCK)].count("encoder") == 6


def test_detr_reads_its_encoder_at_the_image_it_is_given():
    model = read_model({"model_type": "detr", "num_labels": 91})
    # 86 GMAC at about 800 x 1066 (Carion et al. 2020, table 1): 65 at 800 x 800, of which the class heads are none.
    assert forward_flops(model) / 2e9 == pytest.approx(86 * 800 / 1066, rel=0.1)
    cross = next(op for op in model.kinds["decoder"].operators if op.name == "cross_attention")
    assert isinstance(cross, Attention)
    assert forward_flops(model, image_size=1600) > 3.5 * forward_flops(model)


@pytest.mark.parametrize(
    ("key", "value"), [("backbone", "swin"), ("backbone_config", {"model_type": "swin"})]
)
def test_detr_on_another_backbone_is_refused(key, value):
    with pytest.raises(InvalidModel, match="backbone"):
        read_model({"model_type": "detr", "backbone": "swin", key: value})


PUBLISHED = {
    # 4 x 4096^2 and four biases, 3 x 4096 x 11008, two norms; 32 layers; two tables of 103168 x 4096.
    "internlm": ({"hidden_size": 4096}, 7_321_948_160),
    # github:QwenLM, safetensors totals of the published checkpoints.
    "qwen2_vl": (
        {
            "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "vocab_size": 152064,
            "num_attention_heads": 28, "num_key_value_heads": 4,
            "vision_config": {"depth": 32, "embed_dim": 1280, "hidden_size": 3584, "num_heads": 16},
        },
        8_291_375_616,
    ),
    "qwen2_5_vl": (
        {
            "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "vocab_size": 152064,
            "num_attention_heads": 28, "num_key_value_heads": 4,
            "vision_config": {"depth": 32, "hidden_size": 1280, "out_hidden_size": 3584, "num_heads": 16},
        },
        8_292_166_656,
    ),
}  # fmt: skip


@pytest.mark.parametrize("family", PUBLISHED)
def test_published_totals(family):
    config, total = PUBLISHED[family]
    assert count_parameters(read_model({"model_type": family, **config})).parameters == total


def test_compressed_keys_are_seen_behind_the_window():
    sizes = {"heads": 2, "kv_heads": 1, "qk_dim": 4, "v_dim": 4}
    near = Attention(name="a", window=4, **sizes)
    far = near.model_copy(update={"compress": 8})
    chosen = far.model_copy(update={"compress_top_k": 1})
    at = Shard(sequences=1.0, seq_len=64.0, context_len=0.0)
    # 2 x 64 queries x 2 heads x 8 features a key; 8 compressed keys, half of them seen, or 1 - 1/16 of one.
    each = 2 * 64 * 2 * 8
    assert far.model_flops(at) - near.model_flops(at) == each * 4
    assert chosen.model_flops(at) - near.model_flops(at) == each * (1 - 1 / 16)
    scorer = Indexer(name="i", inputs=("q", "k", "w"), heads=2, head_dim=4, top_k=1)
    assert scorer.model_copy(update={"compress": 8}).model_flops(at) * 8 == scorer.model_flops(at)


def test_longcat_stores_matrices_that_nothing_reads():
    with_identities = read_model({"model_type": "longcat_flash"})
    without = read_model({"model_type": "longcat_flash", "zero_expert_num": 0})
    counts, fewer = count_parameters(with_identities), count_parameters(without)
    # 28 layers x 256 identity experts: 2 x 2048 x 6144 first matrices and a row of the router each.
    assert counts.parameters - fewer.parameters == 28 * 256 * (2 * 2048 * 6144 + 6144)
    assert fewer.parameters == pytest.approx(560e9, rel=0.005)  # as published
    assert counts.matmul - fewer.matmul == 28 * 256 * 6144


def test_a_layer_of_two_attentions_recomputes_both():
    kind = read_model({"model_type": "longcat_flash"}).kinds["moe"]
    scopes = {scope.name: scope for scope in kind.scopes}
    assert scopes["core_attn"].operators == ("core_attention", "core_attention_2")
    assert scopes["mla_up_proj"].gives_up == ("q", "k", "v", "q_2", "k_2", "v_2")


HUB = {
    # Configs as published, and the totals of their checkpoints.
    "qwen": ({"kv_channels": 128}, 7_721_324_544),  # Qwen-7B
    "chatglm": ({"multi_query_attention": True, "multi_query_group_num": 2, "add_qkv_bias": True}, 6_243_584_000),
    "Yi": ({"num_key_value_heads": 4}, 6_061_035_520),  # Yi-6B
    "minicpm": (
        {
            "vocab_size": 122753, "hidden_size": 2304, "num_hidden_layers": 40, "num_attention_heads": 36,
            "intermediate_size": 5760,
        },
        2_724_880_896,
    ),
    "deepseek": (
        {
            "hidden_size": 2048, "intermediate_size": 10944, "moe_intermediate_size": 1408,
            "num_hidden_layers": 28, "num_attention_heads": 16, "n_shared_experts": 2, "n_routed_experts": 64,
            "num_experts_per_tok": 6, "first_k_dense_replace": 1,
        },
        16_375_728_128,
    ),
    "bailing_moe": (
        {
            "hidden_size": 2048, "moe_intermediate_size": 1408, "num_hidden_layers": 28, "vocab_size": 126464,
            "num_attention_heads": 16, "num_key_value_heads": 4, "num_shared_experts": 2, "num_experts": 64,
            "num_experts_per_tok": 6, "intermediate_size": 5632,
        },
        16_801_974_272,
    ),
}  # fmt: skip


@pytest.mark.parametrize("family", HUB)
def test_families_without_a_class_as_published(family):
    config, total = HUB[family]
    assert count_parameters(read_model({"model_type": family, **config}, reader="plain")).parameters == total


def test_glm_4_in_its_first_form():
    sizes = {"num_layers": 40, "padded_vocab_size": 151552, "multi_query_group_num": 2}
    model = read_model(
        {"model_type": "chatglm", "multi_query_attention": True, "add_qkv_bias": True, **sizes}
    )
    assert count_parameters(model).parameters == 9_399_951_360
