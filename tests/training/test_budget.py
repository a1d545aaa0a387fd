import pytest

from retable.core.errors import UsageError
from retable.training.budget import parse_budget


@pytest.mark.parametrize(("written", "meant"), [
    ("90s", (90, "seconds")),
    ("10min", (600, "seconds")),
    ("1.5h", (5400, "seconds")),
    ("1e15flops", (1e15, "flops")),
    ("2e7 tokens", (2e7, "tokens")),
    (" 2.5E+7Tokens ", (2.5e7, "tokens")),
    ("3.min", (180, "seconds")),
])  # fmt: skip
def test_amounts_and_units(written, meant):
    assert parse_budget(written) == meant


@pytest.mark.parametrize(
    "written", [600, "", "10", "min", "10 minutes", "-1h", "0tokens", "1e-3flops", "1e15 flops!", "None"]
)
def test_anything_else_is_refused(written):
    with pytest.raises(UsageError, match=r"is not a budget; write for example budget=10min, 1e15flops or 2e7tokens"):
        parse_budget(written)
