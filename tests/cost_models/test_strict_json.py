"""JSON of files: one meaning, or one sentence."""

import pytest

from cost_models.strict_json import parse_config, parse_json


def test_plain_json_is_read() -> None:
    assert parse_json('{"a": [1, 2.5, true, null, "x"]}') == {"a": [1, 2.5, True, None, "x"]}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"a": 1,\n "b": }', "line 2 column 7"),
        ('{"a": 1, "a": 2}', "gives the key 'a' twice"),
        ('{"a": NaN}', "holds NaN"),
        ('{"a": -Infinity}', "holds -Infinity"),
        ('{"a": ' + "9" * 5000 + "}", "a number of 5,000 digits; give at most 400"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("", "not valid JSON"),
    ],
)
def test_anything_else_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        parse_json(text)
    assert len(str(caught.value)) < 200


def test_a_config_may_hold_an_infinite_limit() -> None:
    """Mamba-2 configs as published hold `"time_step_limit": [0.0, Infinity]`; the rest stays strict."""
    found = parse_config('{"time_step_limit": [0.0, Infinity], "name": "Infinity"}')
    assert found == {"time_step_limit": [0.0, {"__float__": "Infinity"}], "name": "Infinity"}
    for text in ('{"a": NaN}', '{"a": Infinity, "a": 1}'):
        with pytest.raises(ValueError, match=r"NaN|twice"):
            parse_config(text)
