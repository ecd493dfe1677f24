"""What an executor would not run as planned is refused by name before anything starts."""

import pytest

from cost_models.engines import ENGINES as KINDS_OF_ENGINE
from cost_models.errors import BadInput, IllegalStrategy
from planner.executor.refuse import ENGINES, HONOURED_OPTIONS, OTHER_OPTIONS, check_run, run_violations
from tests.planner.executor.orders import LLAMA, tiny_order


def rules(*args: object, devices: int = 1, at_hand: int = 0, **kwargs: object) -> set[str]:
    """Names of the rules that stand against an order."""
    order = tiny_order(*args, devices=devices, **kwargs)  # type: ignore[arg-type]
    return {violation.rule for violation in run_violations(order, at_hand)}


def test_a_plain_order_is_run() -> None:
    assert rules() == set()


@pytest.mark.parametrize("engine", ["torch", "ddp", "fsdp2"])
def test_own_engines_are_run(engine: str) -> None:
    assert rules(engine=engine) == set()


def test_other_engines_say_how_to_plan_again() -> None:
    with pytest.raises(IllegalStrategy, match=r"megatron is run by its own script.*--engine torch"):
        check_run(tiny_order(engine="megatron"), 0)


@pytest.mark.parametrize(
    ("job", "rule"),
    [
        ({"options": {"engine.compile": True}}, "run_compile"),
        ({"options": {"engine.param_dtype": "bf16"}}, "run_param_dtype"),
        ({"options": {"engine.overlap": False}}, "run_overlap"),
    ],
)
def test_knobs_that_are_not_honoured(job: dict[str, object], rule: str) -> None:
    assert rules(job=job) == {rule}


@pytest.mark.parametrize(
    ("strategy", "engine"),
    [
        ("offload=optimizer:0.5", "torch"),
        ("offload=parameters,zero=1", "torch"),
        ("offload=optimizer", "ddp"),
        ("offload=optimizer", "parameter_server"),
    ],
)
def test_offload_that_is_not_run(strategy: str, engine: str) -> None:
    try:
        found = rules(strategy, engine=engine)
    except IllegalStrategy:  # the engine itself refuses it
        return
    assert found == {"run_offload"}


def test_offload_that_is_run() -> None:
    assert rules("offload=optimizer") == rules("offload=parameters,zero=3") == set()


def test_precisions_that_need_a_gpu() -> None:
    def of(precision: str, at_hand: int) -> set[str]:
        return rules(cluster="dgx-h100", job={"precision": precision}, at_hand=at_hand)

    assert of("fp8", 1) == {"run_precision"}
    assert of("tf32", 0) == {"run_precision", "run_devices"}
    assert of("tf32", 1) == of("bf16", 1) == set()


def test_a_plan_for_gpus_is_not_trained_without_one() -> None:
    job = {"precision": "bf16"}
    assert rules(cluster="dgx-h100", job=job) == {"run_devices"}
    # A layout is verified on a small twin, which the host can hold.
    assert rules(cluster="dgx-h100", job=job, verify=True) == set()
    with pytest.raises(IllegalStrategy, match=r"no GPU is at hand; use a plan made with --cluster cpu:1"):
        check_run(tiny_order(cluster="dgx-h100", job=job), 0)


@pytest.mark.parametrize("engine", ENGINES)
def test_no_engine_option_is_passed_over(engine: str) -> None:
    fields = KINDS_OF_ENGINE[engine].options_type.model_fields
    assert set(fields) <= {*HONOURED_OPTIONS, *OTHER_OPTIONS}
    for key in set(HONOURED_OPTIONS) & set(fields):
        assert fields[key].default in HONOURED_OPTIONS[key]


def test_no_option_is_listed_that_no_engine_has() -> None:
    fields = {key for engine in ENGINES for key in KINDS_OF_ENGINE[engine].options_type.model_fields}
    assert {*HONOURED_OPTIONS, *OTHER_OPTIONS} <= fields


def test_adapters_are_run_and_what_is_trained_otherwise_is_refused() -> None:
    adapted, quantised = ({"options": {"job.trainable": f"{kind}:r=8"}} for kind in ("lora", "qlora"))
    assert rules(job=adapted) == rules(job=adapted, lora_alpha=16.0, adapters="out") == set()
    assert rules(job=quantised) == {"run_trainable"}
    assert rules(adapters="out") == rules(lora_alpha=16.0) == {"run_adapters"}
    assert rules(job=adapted, factory="tests.planner.executor.factories:plain") >= {"run_trainable"}


@pytest.mark.parametrize("kind", ["ring", "allgather", "ulysses"])
def test_context_parallel_is_run(kind: str) -> None:
    assert rules(f"cp=2,cp_kind={kind}", devices=2) == set()


def test_keys_that_travel_meet_no_scores_that_are_kept_and_no_dropout() -> None:
    unfused = {"options": {"engine.attention": "unfused"}}
    assert rules("cp=2", devices=2, job=unfused) == {"run_cp_unfused"}
    assert rules("cp=2,cp_kind=ulysses", devices=2, job=unfused) == set()
    gpt2 = {
        "model_type": "gpt2",
        "n_embd": 48,
        "n_layer": 2,
        "n_head": 4,
        "n_positions": 32,
        "vocab_size": 120,
    }
    assert rules("cp=2", devices=2, config=gpt2, dropout=True) == {"run_cp_dropout"}
    assert rules("cp=2", devices=2, config=gpt2, dropout=False) == set()


def test_experts_are_divided_and_refused_by_what_does_not_go() -> None:
    moe = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
    assert rules("dp=2,ep=2", devices=2, config=moe) == rules("tp=2,etp=2", devices=2, config=moe) == set()
    cut = {"options": {"job.moe_capacity_factor": 1.25}}
    assert rules("dp=2,ep=2", devices=2, config=moe, job=cut) == set()
    deduplicated = {"options": {"job.moe_dispatcher": "deepep"}}
    assert rules("dp=2,ep=2", devices=2, config=moe, job=deduplicated) == {"run_moe_dispatcher"}
    assert rules("dp=2", devices=2, config=moe, job=deduplicated) == set()
    odd = {"seq_len": 18}
    assert rules("tp=4,sp=false", devices=4, config=moe, job=odd) == {"run_moe_positions"}


def test_too_few_gpus() -> None:
    assert rules("dp=4", devices=4, at_hand=2) == {"run_devices"}
    assert rules("dp=4", devices=4, at_hand=4) == set()


def test_too_many_processes_for_a_cpu() -> None:
    assert rules("dp=128", devices=128, job={"global_batch": 128}) == {"run_devices"}


def test_a_factory_is_not_verified() -> None:
    assert rules(verify=True, factory="tests.planner.executor.factories:plain") == {"factory_verify"}


def test_a_model_beyond_the_hosts_memory_is_not_started() -> None:
    # 2^20 tokens of width 2^17 are 512 GiB in fp32, before gradients and moments.
    config = {**LLAMA, "hidden_size": 2**17, "vocab_size": 2**20}
    with pytest.raises(IllegalStrategy, match=r"run_memory: a process needs .* TiB, its share"):
        check_run(tiny_order(config=config), 0)
    check_run(tiny_order(config=config), 1)
    check_run(tiny_order(config=config, verify=True), 0)


def test_missing_data() -> None:
    assert rules(data="missing.txt") == {"data"}


def test_options_out_of_range() -> None:
    with pytest.raises(ValueError, match="steps"):
        tiny_order(steps=0)


def test_an_order_is_read_as_it_was_written(tmp_path: object) -> None:
    from pathlib import Path

    from planner.executor.request import read_order

    path = Path(str(tmp_path)) / "order.json"
    order = tiny_order("dp=2,mbs=2", devices=2, steps=3, lr=0.01)
    order.write(path)
    again = read_order(path)
    assert (again.strategy, again.options) == (order.strategy, order.options)
    assert again.situation.model == order.situation.model
    path.write_text("{}")
    with pytest.raises(BadInput, match="no run order"):
        read_order(path)
