"""Test every entry point as a script, started by a user or a debugger: `--help`, and completion in the shell."""

import os
import re
import subprocess
import sys

import pytest

from pipelines.config.project import CONF

SCRIPTS = CONF.parent / "pipelines"
STAGES = sorted(path.stem for path in SCRIPTS.glob("*.py") if "\n@stage\n" in path.read_text(encoding="utf-8"))
OFTEN = ("pretrain", "evaluate", "report")  # the help of other entry points is tested at night


@pytest.mark.parametrize(
    "stage", [stage if stage in OFTEN else pytest.param(stage, marks=pytest.mark.long) for stage in STAGES]
)
def test_help(stage, bare_project):
    by_path = f"{SCRIPTS}/{stage}.py" if stage == "pretrain" else stage.removesuffix("_text")
    shown = bare_project.succeed(by_path, "--help").stdout
    assert f"`python -m pipelines.{stage}" in shown
    groups = shown.partition("Groups")[2].partition("Settings")[0]
    root = (CONF / f"{'tokenize' if stage == 'tokenize_text' else stage}.yaml").read_text(encoding="utf-8")
    if recipe := re.search("- recipe: (.*)", root):
        assert recipe[1] in groups and "/_" not in groups
        above: re.Match | None = recipe
        while above:
            root += (text := (CONF / f"recipe/{above[1]}.yaml").read_text(encoding="utf-8"))
            above = re.search(r"/recipe/([\w/]+)", text)
    for group in (path.name for path in CONF.iterdir() if path.is_dir()):
        assert (f"\n{group}: " in groups) == (re.search(f"\n  - /?{group}: ", root) is not None)


@pytest.mark.parametrize(("typed", "choices"), [
    ("mod", ["model=", "model."]), ("model=ls", ["model=lstm", "model=lstm_tagger"]),
    ("tokenizer=wordpiece_uncased", ["tokenizer=wordpiece_uncased", "tokenizer=wordpiece_uncased_30k"]),
    ("rec", ["recipe=", "recompute="]),
    ("recipe=transformer/gpt_sh", [f"recipe=transformer/gpt_shakespeare{end}" for end in ("", "_gpu")]),
    ("recipe=transformer/gpt model.n_h", ["model.n_heads="]), ("debug=f", ["debug=fdr"]),
    ("callbacks=device_stats callbacks.", ["callbacks.device_stats."]),
])  # fmt: skip
def test_completion(typed, choices, bare_project):
    line = f"python pipelines/pretrain.py {typed}"
    query = {"COMP_LINE": line, "COMP_POINT": str(len(line))}
    shown = bare_project.succeed("pretrain", "-sc", "query=bash", **query).stdout
    assert sorted(shown.split()) == sorted(choices)


def test_help_waits_for_no_torch(tmp_path):
    imports = "; ".join(f"import {stage}" for stage in STAGES)  # with the stages' folder first, as for a script
    code = f"import sys; sys.path.insert(0, {str(SCRIPTS)!r}); {imports}; sys.exit('torch' in sys.modules)"
    paths = os.pathsep.join(map(str, (CONF.parent / "src", CONF.parent)))
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=os.environ | {"PYTHONPATH": paths}, check=True)


def test_no_entry_point_hides_a_module_of_the_standard_library():
    """Python searches a script's folder first."""
    for folder in ("pipelines", "benchmarks"):
        assert not {path.stem for path in (CONF.parent / folder).glob("*.py")} & sys.stdlib_module_names
