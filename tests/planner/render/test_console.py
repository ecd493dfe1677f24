"""What reaches a terminal: no steering characters of the input, no exit of its own."""

import pytest

from planner.render.console import make_console, plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("llama", "llama"),
        ("é…█ 7B", "é…█ 7B"),
        ("\x1b[31mred\x07", "?[31mred?"),
        ("a\ud800b", "a?b"),
        ("two\nlines", "two\nlines"),
    ],
)
def test_text_from_outside_is_harmless(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_markup_of_the_input_stays_text() -> None:
    assert plain("[bold]x[/bold]") == "\\[bold]x\\[/bold]"


def test_a_closed_pipe_is_left_to_the_caller() -> None:
    with pytest.raises(BrokenPipeError):
        make_console().on_broken_pipe()
