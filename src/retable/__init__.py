"""Retable re-runs the results tables of language-model pretraining as one reproducible pipeline.

>>> import retable
>>> gpt = retable.load("outputs/pretrain/english_small/gpt_rotary-1")
>>> gpt.can
('perplexity', 'score', 'choose', 'generate', 'continue_', 'alternatives', 'stream', 'encode')
"""

from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from retable.inference.load import load
    from retable.reporting.comparison import compare

__all__ = ["__version__", "compare", "load"]


def __getattr__(name: str) -> Any:
    """Import `load`, `compare` or the version on first use, so that `import retable` is fast."""
    if name == "load":
        from retable.inference.load import load

        return load
    if name == "compare":
        from retable.reporting.comparison import compare

        return compare
    if name == "__version__":
        return version("retable")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
