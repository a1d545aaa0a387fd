"""Test that the notebooks run from top to bottom, and that the saved output of what is counted is what they print."""

import ast
import json
import os
from pathlib import Path

import pytest

from retable.core.hub import locate
from retable.exchange.checkpoint import SNAPSHOT
from tests.pipelines.conftest import ENVIRONMENT

DOCS = Path(__file__).parent.parent.parent / "docs"
ENCODER = "sentence-transformers/all-MiniLM-L6-v2"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a function that runs a notebook, and returns its names and the saved and printed output of its cells."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)

    def running(name: str) -> tuple[dict[str, object], list[tuple[str, str]]]:
        names: dict[str, object] = {}
        both = []
        for cell in json.loads((DOCS / name).read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "code":
                body = ast.parse("".join(cell["source"])).body
                last = ast.Expression(body.pop().value) if isinstance(body[-1], ast.Expr) else None
                exec(compile(ast.Module(body, []), name, "exec"), names)
                shown = eval(compile(last, name, "eval"), names) if last else None
                text = ["".join(output["data"]["text/plain"]) for output in cell["outputs"] if "data" in output]
                assert (shown is not None) == bool(text) or last is None
                both += [(text[0], repr(shown))] if text else []
        return names, both

    return running


@pytest.mark.long
def test_five_minutes(run, capfd):
    _, both = run("five-minutes.ipynb")
    (saved, shown) = next(pair for pair in both if "kn5-1" in pair[0])
    assert shown.startswith(saved.partition(", 'small_lstm")[0])  # trained systems differ in the last digits
    assert os.listdir("outputs") and "if the recent" in capfd.readouterr().out


@pytest.mark.long
def test_a_checkpoint_is_fine_tuned(run):
    try:
        locate(ENCODER, SNAPSHOT)
    except Exception as error:
        pytest.skip(f"needs the Hugging Face hub, or {ENCODER} in its cache: {error}")
    names, both = run("fine-tune.ipynb")
    assert both[0][0] == both[0][1] and names["classifier"].labels == ("negative", "positive")
    accuracy = float(both[-1][1])
    assert accuracy > 0.8 and abs(accuracy - float(both[-1][0])) < 0.05
