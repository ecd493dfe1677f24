"""The text forms of recompute."""

import pytest

from cost_models.errors import IllegalStrategy
from cost_models.specs.recompute import ALL_LAYERS, Recompute, parse_recompute

FORMS = {
    "none": Recompute(),
    "selective": Recompute(("core_attn",)),
    "selective:mlp+layernorm": Recompute(("mlp", "layernorm")),
    "full": Recompute(full=ALL_LAYERS),
    "full:3": Recompute(full=3),
    "full:4+3+2+0": Recompute(full=(4, 3, 2, 0)),
    "full:3/selective": Recompute(("core_attn",), 3),
    "full:3/selective:mlp": Recompute(("mlp",), 3),
}


@pytest.mark.parametrize("text", FORMS)
def test_a_form_is_read_and_written_back(text: str) -> None:
    assert parse_recompute(text) == FORMS[text]
    assert FORMS[text].text() == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "some",
        "none:3",
        "none/full",
        "full:",
        "full:-1",
        "full:²",
        "full:1_0",
        "full:3+",
        "full:" + "9" * 5000,
        "full/full",
        "full:2/full:1",
        "full" + "/full" * 10_000,
        "full:2/",
        "selective:",
        "selective:a+a",
        "selective:" + "+".join(map(str, range(65))),
        "selective:a+",
        "selective/none",
    ],
)
def test_anything_else_is_refused_with_the_forms(text: str) -> None:
    with pytest.raises(
        IllegalStrategy, match=r"recompute_syntax.*is not known; use none or selective"
    ) as caught:
        parse_recompute(text)
    assert len(str(caught.value)) < 300
