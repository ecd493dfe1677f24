"""A user's own module: whole, in stages, divided by its plan; what it cannot do is refused by name."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from cost_models.errors import BadInput
from planner.executor.factory import UserLoss, build_factory_chunk, factory_violations, load_factory
from planner.executor.model.options import BuildOptions
from planner.executor.model.tensor_parallel import TensorParallel
from planner.executor.request import order_of_document
from planner.executor.step import Trainer
from tests.planner.executor.orders import LLAMA, tiny_order
from tests.planner.executor.ranks import run_ranks

HERE = "tests.planner.executor.factories"
SMALL = {**LLAMA, "vocab_size": 32}
IDS = torch.arange(16).view(2, 8)


def _rules(name: str, strategy: str, devices: int) -> list[str]:
    order = tiny_order(strategy, devices=devices)
    return [violation.rule for violation in factory_violations(f"{HERE}:{name}", order.strategy)]


def test_stages_one_after_the_other_are_the_module() -> None:
    whole = build_factory_chunk(f"{HERE}:hinted", 0, 1, BuildOptions(seed=5))
    first, last = (build_factory_chunk(f"{HERE}:hinted", stage, 2, BuildOptions(seed=5)) for stage in (0, 1))
    assert torch.equal(last(first(IDS)), whole(IDS))
    names = [name for chunk in (first, last) for name, _ in chunk.named_parameters()]
    assert sorted(names) == sorted(name for name, _ in whole.named_parameters())
    assert (first.cut.first, first.cut.last, last.cut.last) == (True, False, True)


def test_another_seed_gives_other_weights() -> None:
    one, two = (load_factory(f"{HERE}:plain", seed).module for seed in (1, 2))
    assert not torch.equal(one.get_parameter("head.weight"), two.get_parameter("head.weight"))


def test_recomputation_changes_no_gradient() -> None:
    gradients = []
    for options in (BuildOptions(), BuildOptions(full_layers=1)):
        chunk = build_factory_chunk(f"{HERE}:hinted", 1, 2, options)
        chunk(torch.ones(2, 8, 16)).square().sum().backward()
        gradients.append([p.grad for p in chunk.parameters()])
    assert chunk.recomputed == ("layers.2", "layers.3", "head")
    assert all(torch.equal(one, two) for one, two in zip(*gradients, strict=True))


def test_a_tie_over_two_stages_is_marked_on_both() -> None:
    first, last = (build_factory_chunk(f"{HERE}:tied", stage, 2, BuildOptions()) for stage in (0, 1))
    assert first.get_parameter("model.table.weight").tie_name == "table.weight"
    assert last.get_parameter("model.head.weight").tie_name == "table.weight"


@pytest.mark.parametrize(
    ("name", "strategy", "devices", "rule"),
    [
        ("untrained", "", 1, "factory_frozen"),
        ("lazy", "", 1, "factory_lazy"),
        ("plain", "pp=2", 2, "factory_stages"),
        ("plain", "tp=2,sp=false", 2, "factory_tp"),
        ("plain", "recompute=full", 1, "factory_recompute"),
        ("hinted", "recompute=full:1", 1, "factory_recompute"),
        ("hinted", "tp=2,sp=true", 2, "factory_sp"),
        ("jumping", "pp=2", 2, "factory_stages"),
        ("incomplete", "pp=2", 2, "factory_stages"),
        ("listed", "pp=2", 2, "factory_stages"),
        ("unfit", "pp=2", 2, "factory_stages"),
        ("failing", "", 1, "factory"),
    ],
)
def test_what_it_cannot_do_is_refused(name: str, strategy: str, devices: int, rule: str) -> None:
    assert _rules(name, strategy, devices) == [rule]


@pytest.mark.parametrize(
    ("name", "strategy", "devices"),
    [
        ("plain", "", 1),
        ("plain", "dp=2,zero=3", 2),
        ("hinted", "tp=2,pp=2,sp=false", 4),
        ("hinted", "recompute=full", 1),
    ],
)
def test_what_it_can_do_is_not(name: str, strategy: str, devices: int) -> None:
    assert _rules(name, strategy, devices) == []


@pytest.mark.parametrize(
    ("reference", "what"),
    [
        ("nowhere", "package.module:function"),
        (f"{HERE}:absent", "cannot be loaded"),
        (f"{HERE}:misspelt", "'stage'"),
        (f"{HERE}:number", "return an nn.Module"),
        (f"{HERE}:failing", "no weights here"),
        (f"{HERE}:unlisted", "give stages as lists"),
    ],
)
def test_wrong_factories_say_what_is_wrong(reference: str, what: str) -> None:
    with pytest.raises(BadInput, match=what):
        load_factory(reference)


def _gradients(rank: int, world: int) -> float:
    """Largest relative difference of the divided module's gradients from the whole one's."""
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("tp",))
    whole = build_factory_chunk(f"{HERE}:hinted", 0, 1, BuildOptions())
    options = BuildOptions(tensor_parallel=TensorParallel(mesh, world, rank))
    divided = build_factory_chunk(f"{HERE}:hinted", 0, 1, options)
    for chunk in (whole, divided):
        chunk.loss.total(chunk(IDS), IDS).backward()
    worst = 0.0
    for name, parameter in divided.named_parameters():
        gradient, expected = parameter.grad, whole.get_parameter(name).grad
        assert gradient is not None
        assert expected is not None
        own = gradient.full_tensor() if isinstance(gradient, DTensor) else gradient
        worst = max(worst, float((own - expected).abs().max() / expected.abs().max()))
    assert isinstance(divided.get_parameter("model.layers.0.up.weight"), DTensor)
    return worst


def test_its_tp_plan_divides_it(run_ranks: Callable[..., list[Any]]) -> None:
    assert max(run_ranks(_gradients, 2)) < 1e-5


def _losses(rank: int, world: int, strategy: str, name: str) -> list[float]:
    config = {**LLAMA, "vocab_size": 32, "num_hidden_layers": 4}
    order = tiny_order(strategy, devices=world, config=config, factory=f"{HERE}:{name}", lr=1e-2)
    trainer = Trainer(order, torch.device("cpu"))
    return [trainer.train_step().loss for _ in range(3)]


def test_a_pipeline_of_its_stages_trains_as_one_process(run_ranks: Callable[..., list[Any]]) -> None:
    expected = run_ranks(_losses, 1, "", "tied")[0]
    assert run_ranks(_losses, 2, "pp=2", "tied")[0] == pytest.approx(expected, rel=1e-5)
    assert run_ranks(_losses, 2, "dp=2,zero=3", "tied")[0] == pytest.approx(expected, rel=1e-5)
    assert expected[2] < expected[0]


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (None, "gave NoneType; return a tensor, or an object with `logits`"),
        ((torch.zeros(1),), "gave tuple; return a tensor"),
    ],
)
def test_what_is_no_tensor_is_said_by_its_type(output: object, message: str) -> None:
    chunk = build_factory_chunk(f"{HERE}:plain", 0, 1, BuildOptions())
    chunk.model.forward = lambda x: output  # type: ignore[method-assign, assignment]
    with pytest.raises(BadInput, match=message):
        chunk(IDS)


def test_logits_that_do_not_fit_the_targets_are_refused() -> None:
    loss = UserLoss()
    with pytest.raises(BadInput, match=r"logits of 5 classes, and targets go up to 7"):
        loss.total(torch.zeros(2, 8, 5), IDS[:, :8] % 8)
    with pytest.raises(BadInput, match=r"gave \(2, 5\) for targets \(2, 8\)"):
        loss.total(torch.zeros(2, 5), IDS)


def test_a_loss_that_nothing_trained_enters_is_refused() -> None:
    order = tiny_order(config=SMALL, factory=f"{HERE}:detached", steps=1)
    found = run_ranks(train_once, 1, order.to_json())
    assert "depends on no parameter that is trained" in found[0]


def train_once(rank: int, world: int, document: dict[str, Any]) -> str:
    """What a step says."""
    try:
        Trainer(order_of_document(document), torch.device("cpu")).train_step()
    except BadInput as error:
        return str(error)
    return ""
