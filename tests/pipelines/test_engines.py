"""Engines: what runs a study's stages and a sweep's jobs."""

import os

import pytest

from pipelines.engines import engine
from retable.errors import UsageError

SAYS = "import os, sys; print(*sys.argv[1:], os.environ['SAID'], os.environ['RETABLE_DEVICES']); sys.exit(3)"


def test_a_module_runs_in_the_folder_and_says_its_code(tmp_path, monkeypatch):
    (tmp_path / "says.py").write_text(SAYS, encoding="utf-8")
    (log := tmp_path / "log.txt").write_text("before\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with engine("local", 3) as runner:
        assert runner.slots == 3 and not runner.hands_out
        assert runner.run("says", ["a b", "c"], os.environ | {"SAID": "so"}, log, devices=2, gpus=True) == 3
    assert log.read_text(encoding="utf-8") == "before\na b c so 2 gpu\n"


@pytest.mark.parametrize(("name", "slots", "said"), [
    ("local", 0, "jobs=0 runs nothing; write 1 or more"), ("cloud", None, "there is no engine cloud; write local"),
])  # fmt: skip
def test_there_is_a_line_for_a_mistake(name, slots, said):
    with pytest.raises(UsageError, match=f"^{said}"):
        engine(name, slots)
