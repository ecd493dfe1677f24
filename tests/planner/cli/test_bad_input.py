"""Bad input: exit 2, standard output empty, one sentence that says what to write instead."""

from pathlib import Path
from typing import Any

import pytest

STRATEGY = "--strategy tp=1"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("pln", ("did you mean plan?",)),
        ("frobnicate", ("no command", "evaluate")),
        ("catalog device", ("did you mean devices?",)),
        ("catalog clusters dgx-h10", ("dgx-h100",)),
        ("catalog engines megatrn", ("did you mean megatron?",)),
        ("catalog models llama", ("llama",)),
        ("evaluate --modl x", ("--model",)),
        ("evaluate --precision bf61", ("did you mean bf16?",)),
        ("evaluate --optimizer adam", ("adamw",)),
        ("check --output-format xml", ("junit",)),
        (
            "plan --objective prise --model gpt2 --cluster l4 --seq-len 1024 --global-batch 8",
            ("prise", "step_time", "cost_per_token"),
        ),
        ("evaluate", ("--strategy",)),
        ("evaluate --strategy tp=1", ("--model",)),
        ("evaluate --strategy tp=1 --model gpt2", ("--cluster",)),
        ("evaluate --strategy tp=1 --model gpt2 --cluster l4", ("--global-batch",)),
        ("evaluate --strategy tp=1 --model gpt2 --cluster l4 --global-batch 8", ("--seq-len",)),
        ("evaluate --strategy tp=1 --model resnet-50 --cluster l4 --seq-len 8 --global-batch 8", ("vision",)),
        ("inspect", ("--model",)),
        ("validate no-such.csv", ("no-such.csv",)),
        ("check no-such-plan.json", ("cannot be read",)),
    ],
)
def test_a_mistyped_or_missing_word(run: Any, arguments: str, words: tuple[str, ...]) -> None:
    outcome = run(arguments)
    assert outcome.refused(*words), outcome


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("0", ("0 is out of range", "from 1")),
        ("-8", ("-8 is out of range",)),
        ("1e3", ("write 1000",)),
        ("512.0", ("write 512",)),
        ("nan", ("whole number",)),
        ("inf", ("whole number",)),
        ("12x", ("whole number",)),
        ("", ("whole number",)),
        ("9" * 30, ("out of range",)),
        ("9" * 5000, ("out of range",)),
        ("٣", ("whole number",)),
    ],
)
@pytest.mark.parametrize("option", ["--global-batch", "--seq-len"])
def test_a_number_that_cannot_be(run: Any, option: str, value: str, words: tuple[str, ...]) -> None:
    outcome = run(["evaluate", f"{option}={value}"])
    assert outcome.refused(option, *words), outcome


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        ("dgx-h100:0", ("at least 1",)),
        ("dgx-h100:-8", ("at least 1",)),
        ("dgx-h100:many", ("many",)),
        ("dgx-h100:" + "9" * 20, ("at most",)),
        ("dgx-h10:8", ("did you mean",)),
        ("no/such.toml", ("cannot be read",)),
    ],
)
def test_a_cluster_that_cannot_be(run: Any, cluster: str, words: tuple[str, ...]) -> None:
    job = f"--model gpt2 --cluster {cluster} --seq-len 128 --global-batch 8"
    outcome = run(f"evaluate {job} {STRATEGY}")
    assert outcome.refused(*words), outcome


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("engine.atention=flash", ("did you mean attention?",)),
        ("engine.attention=fast", ("engine.attention",)),
        ("attention=flash", ("job. or engine.",)),
        ("job.moe_imbalance=nan", ("finite",)),
        ("job.moe_imbalance=٣", ("job.moe_imbalance",)),
        ("engine.dropout=1", ("engine.dropout", "boolean")),
        ("engine.vocabulary_multiple=true", ("engine.vocabulary_multiple", "integer")),
        ("job.moe_imbalance=" + "9" * 400, ("digits",)),
        ("job.moe_imbalance=1e999", ("finite",)),
        ("job.train_mtp", ("not key=value",)),
        ("=1", ("not key=value",)),
    ],
)
def test_an_option_that_is_not_known(run: Any, job: str, setting: str, words: tuple[str, ...]) -> None:
    outcome = run(["evaluate", *job.split(), "--strategy=tp=1", "--set", setting])
    assert outcome.refused(*words), outcome


def test_an_option_given_twice_is_refused(run: Any, job: str) -> None:
    outcome = run(f"evaluate {job} {STRATEGY} --set job.train_mtp=true --set job.train_mtp=false")
    assert outcome.refused("twice")


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        ("tp=3", ("world_size", "8 devices")),
        ("tp=0", ("tp=0",)),
        ("tp=-1", ("tp=-1",)),
        ("tp=two", ("tp=two",)),
        ("tp=1,tp=2", ("twice",)),
        ("tpp=1", ("did you mean tp?",)),
        ("tp", ("tp",)),
        ("schedule=fast", ("schedule",)),
        ("recompute=some", ("recompute",)),
        ("zero=9", ("zero",)),
        ("mbs=5", ("mbs",)),
        ("pp=8,stages=1+1", ("stages",)),
        ("tp=" + "9" * 30, ("tp",)),
    ],
)
def test_a_strategy_that_is_illegal(run: Any, job: str, strategy: str, words: tuple[str, ...]) -> None:
    for command in ("evaluate", "check"):
        outcome = run(f"{command} {job} --strategy {strategy} --json")
        assert outcome.refused("illegal strategy", *words), outcome


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"a": 1,\n  "b": }', ("line 2 column 8",)),
        (b"", ("empty",)),
        (b"  \n", ("empty",)),
        (b"[1, 2]", ("a list",)),
        (b'{"a": NaN}', ("NaN",)),
        (b'{"a": 1, "a": 2}', ("twice",)),
        (b"\x80\x02}q\x00", ("not text", "byte 0")),
        (b'{"a": ' + b"9" * 5000 + b"}", ("model",)),
        (b"[" * 100_000, ("nested",)),
        (b"{}", ("model_type",)),
        (b'{"model_type": "warp"}', ("warp",)),
    ],
)
def test_a_model_file_that_cannot_be_read(
    run: Any, tmp_path: Path, content: bytes, words: tuple[str, ...]
) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    for outcome in (run(["inspect", "--model", str(path)]), run("inspect --model -", stdin=content)):
        assert outcome.refused(*words), outcome
        assert outcome.err.count("\n") == 1


def test_a_model_path_that_is_no_file(run: Any, tmp_path: Path) -> None:
    assert run(["inspect", "--model", str(tmp_path / "none.json")]).refused("No such file")
    assert run(["inspect", "--model", str(tmp_path)]).refused("is a directory")
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    assert run(["inspect", "--model", str(tmp_path)]).refused("model_type")
    assert run(["inspect", "--model", "a\0b.json"]).refused("cannot be read")


def test_a_huge_model_file_is_refused_unread(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    with path.open("wb") as stream:
        stream.truncate(65 * 1024**2)
    assert run(["inspect", "--model", str(path)]).refused("larger than 64 MiB")


def test_standard_input_is_read_once(run: Any) -> None:
    assert run("evaluate --model - --cluster - --strategy tp=1").refused("once")


def test_json_and_another_format_exclude_each_other(run: Any, job: str) -> None:
    assert run(f"check {job} {STRATEGY} --json --output-format sarif").refused("one of them")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--pin warp=1", ("warp",)),
        ("--pin tp=0", ("tp=0",)),
        ("--pin tp=2 --pin tp=4", ("twice",)),
        ("--ban schedule=fast", ("fast",)),
        ("--gap nan", ("--gap",)),
        ("--gap 2", ("--gap",)),
        ("--max-seconds 0", ("--max-seconds",)),
        ("--top-k -1", ("--top-k",)),
        ("--seed 1.5", ("--seed",)),
        ("-o no/such/folder/plan.json", ("no folder",)),
        ("--progress bar", ("jsonl",)),
    ],
)
def test_a_search_that_cannot_be(run: Any, job: str, options: str, words: tuple[str, ...]) -> None:
    outcome = run(f"plan {job} {options}")
    assert outcome.refused(*words), outcome


@pytest.mark.parametrize("option", ["--model", "--cluster", "--strategy"])
@pytest.mark.parametrize("value", ["x" * 5000, "x/" * 5000, "a\0b", "\udcff", "\x1b[31m", " ", "."])
def test_a_value_that_can_be_no_name(run: Any, job: str, option: str, value: str) -> None:
    outcome = run(["evaluate", *job.split(), "--strategy=tp=1", f"{option}={value}"])
    assert outcome.refused(), outcome
    assert len(outcome.err) < 2500
    assert "\x1b" not in outcome.err


def test_an_empty_value_is_refused(run: Any, job: str) -> None:
    for option in ("--model", "--cluster", "--strategy"):
        assert run(["evaluate", *job.split(), "--strategy=tp=1", f"{option}="]).refused(), option


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--pin tp=2.0", ("tp=2.0 is not a whole number",)),
        ("--pin tp=1_0", ("tp=1_0 is not a whole number",)),
        ("--pin tp=²", ("not a whole number",)),
        ("--pin tp", ("write for example tp=8",)),
        ("--ban tp=²", ("not a whole number",)),
        ("--ban tp=" + "9" * 5000, ("not a whole number",)),
        ("--pin recompute=full" + "/full" * 5000, ("recompute", "is not known")),
    ],
)
def test_a_pin_or_ban_that_is_none(run: Any, job: str, arguments: str, words: tuple[str, ...]) -> None:
    outcome = run(f"plan {job} {arguments} --json")
    assert outcome.refused(*words), outcome
