"""What is trained after adapters are in, and that they compute y = W x + scale B A x."""

import pytest
import torch

from cost_models.fine_tuning import fine_tuned, without_adapters
from cost_models.readers import read_model
from cost_models.specs.counts import count_parameters
from cost_models.specs.trainable import parse_trainable
from planner.executor.adapters.attach import attach
from planner.executor.adapters.pairs import AdapterOptions
from planner.executor.model.build import build_chunk, whole
from planner.executor.model.options import BuildOptions
from tests.planner.executor.orders import DEEPSEEK, LLAMA, MIXTRAL

SCALE = 2.0


def built(config, text, **options):
    trainable = parse_trainable(text)
    model = fine_tuned(read_model(dict(config), name="tiny"), trainable)
    base = without_adapters(model)
    chunk = build_chunk(base, whole(base), BuildOptions(seed=3, **options))
    attach(
        chunk, model, BuildOptions(seed=3, **options), AdapterOptions(trainable.targets, SCALE, zero=False)
    )
    return model, chunk


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (LLAMA, "lora:r=4"),
        (LLAMA, "lora:r=2,targets=q_proj+v_proj+down"),
        (MIXTRAL, "lora:r=4"),
        (DEEPSEEK, "lora:r=8"),
        (DEEPSEEK, "lora:r=8,targets=kv_up+expert_down"),
    ],
)
def test_what_is_trained_is_what_the_cost_model_counts(config, text):
    model, chunk = built(config, text, device="meta")
    trained = {name: p.numel() for name, p in chunk.named_parameters() if p.requires_grad}
    assert all(".adapters." in name for name in trained)
    assert sum(trained.values()) == count_parameters(model).trainable


@pytest.mark.parametrize("config", [LLAMA, MIXTRAL, DEEPSEEK], ids=["llama", "mixtral", "deepseek"])
def test_adapters_add_scale_b_a(config):
    """Merged weights W + scale B A give the same loss; by the chain rule dA = scale B' dW and dB = scale dW A'."""
    _, chunk = built(config, "lora:r=4")
    _, merged = built(config, "lora:r=4")
    pairs = merge(merged)
    ids, targets = torch.randint(0, 90, (2, 2, 16), generator=torch.Generator().manual_seed(1))
    losses = []
    for module in (chunk, merged):
        loss = module.loss_sum(module(ids), targets)
        loss.backward()
        losses.append(loss.detach())
    torch.testing.assert_close(*losses, rtol=1e-6, atol=0.0)
    found = dict(chunk.named_parameters())
    assert all(found[name].grad is None for name in found if ".adapters." not in name)
    expected = {name: torch.zeros_like(found[name]) for pair in pairs for name in pair[1:]}
    for weight, down, up in pairs:
        gradient = merged.get_parameter(weight).grad
        expected[down] += SCALE * found[up].detach().mT @ gradient
        expected[up] += SCALE * gradient @ found[down].detach().mT
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name].grad, gradient, rtol=1e-4, atol=1e-5 * gradient.abs().max())


def merge(chunk):
    """Add every adapter to its weight, take it out and train the weight; names of (weight, A, B)."""
    found = []
    for layer, block in chunk.layers.items():
        for operator, module in block.named_children():
            adapters = getattr(module, "adapters", None)
            if adapters is None:
                continue
            own = f"layers.{layer}.{operator}"
            if isinstance(adapters, torch.nn.ModuleDict):
                names = [(part, f"adapters.{part}.a", f"adapters.{part}.b") for part in adapters]
            else:
                ups = dict(zip(module.names, adapters.names, strict=True))
                names = [(part, "adapters.a", f"adapters.{up}") for part, up in ups.items()]
            for part, down, up in names:
                weight = module.get_parameter(part)
                weight.data += SCALE * module.get_parameter(up).data @ module.get_parameter(down).data
                weight.requires_grad_()
                found.append((f"{own}.{part}", f"{own}.{down}", f"{own}.{up}"))
            module.adapters = None
    return found


def test_an_adapter_begins_as_the_base():
    trainable = parse_trainable("lora:r=4")
    model = fine_tuned(read_model(dict(LLAMA), name="tiny"), trainable)
    base = without_adapters(model)
    plain = build_chunk(base, whole(base), BuildOptions())
    adapted = build_chunk(base, whole(base), BuildOptions())
    attach(adapted, model, BuildOptions(), AdapterOptions())
    ids = torch.arange(16).view(1, 16)
    assert torch.equal(plain(ids), adapted(ids))
    bound = LLAMA["hidden_size"] ** -0.5
    drawn = adapted.get_parameter("layers.1.qkv.adapters.q.a")
    assert 0.5 * bound < drawn.abs().max() <= bound


def test_a_model_that_has_adapters_gets_no_second_ones():
    """A written order holds the adapted model, and is read with the same job."""
    trainable = parse_trainable("lora:r=4")
    once = fine_tuned(read_model(dict(LLAMA), name="tiny"), trainable)
    assert fine_tuned(once, trainable) == once
    plain = read_model(dict(LLAMA), name="tiny")
    bare = without_adapters(once)
    for name, kind in plain.kinds.items():
        assert bare.kinds[name].scopes == kind.scopes
        assert [op.name for op in bare.kinds[name].operators] == [op.name for op in kind.operators]
