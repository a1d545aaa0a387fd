"""Parsing of training budgets: `10min`, `1e15flops` or `2e7tokens`."""

import math
import re

from retable.core.errors import UsageError

_BUDGET = re.compile(r"(\d+(?:\.\d*)?(?:e\+?\d+)?)\s*(s|min|h|flops|tokens)")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0}


def parse_budget(budget: str) -> tuple[float, str]:
    """Parse a budget into its amount and unit: seconds, flops or tokens.

    Raises: UsageError: the text is not a budget.
    """
    match = _BUDGET.fullmatch(str(budget).strip().lower())
    if not match or not 0 < float(match[1]) < math.inf:
        raise UsageError(f"budget={budget} is not a budget; write for example budget=10min, 1e15flops or 2e7tokens")
    amount, unit = float(match[1]), match[2]
    return (amount * _SECONDS[unit], "seconds") if unit in _SECONDS else (amount, unit)
