"""Studies of others: the shell that DVC gives commands to runs nothing of theirs, and Hydra writes nowhere else."""

import shlex
import subprocess
from pathlib import Path

import pytest

from pipelines import plan
from retable.errors import UsageError
from retable.plan.conf import Conf
from retable.plan.graph import report_graph
from retable.plan.study import expand, read_study

ROOT = Path(__file__).parent.parent.parent
CONF = Conf(ROOT / "conf")


def refused(name="mine", **said) -> str:
    with pytest.raises(UsageError) as refusal:
        expand(CONF, name, {"corpus": "grammar_tiny"} | said)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


NAMES = [
    "x; touch canary", "$(touch canary)", "`touch canary`", "x\ntouch canary", "x | sh", "../../x", "/x", "..", ".", "",
    "-x", "--config-dir=x", "'", '"', "~x", "x&", "{of.__class__}", "${oc.env:HOME}", "x y", "=x", "<script>",
    "x\x1b[2J",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_of_systems_and_studies_are_names(name):
    assert "is no name; write letters, digits" in refused(systems=[{"of": "lstm", "as": name}])
    assert "is no name; write letters, digits" in refused(name, systems=[{"of": "lstm"}])
    mixtures = {name: ["kn3", "lstm"]}
    assert "is no name; write letters, digits" in refused(systems=[{"of": ["kn3", "lstm"]}], mixtures=mixtures)


@pytest.mark.parametrize("name", ["../../escaped", "/tmp/escaped", "x;y", "x\ny"])
def test_a_new_study_is_written_among_the_others(name, tmp_path, monkeypatch):
    (tmp_path / "conf").symlink_to(ROOT / "conf")
    monkeypatch.chdir(tmp_path)
    before = sorted((ROOT / "conf").rglob("*"))
    with pytest.raises(UsageError, match="is no name"):
        plan.new(name, ["corpus=grammar_tiny", "systems=kn5"])
    assert sorted((ROOT / "conf").rglob("*")) == before and not (ROOT / "escaped.yaml").exists()


@pytest.mark.parametrize(
    "key",
    [
        "hydra.run.dir", "hydra/launcher", "hydra.searchpath", "+hydra.callbacks.mine._target_", "~hydra.job", "hydra",
        "hydra@x", "model@hydra.callbacks", "+callbacks.mine.dirpath", "callbacks", "+logger.mine._target_", "logger@x",
        "--config-dir", "-m", "--multirun", "--cfg", "a b", "x;touch canary", "x\ny", "", "=", "$(x)", 3,
    ],
)  # fmt: skip
def test_what_a_study_sets_is_what_is_computed(key):
    systems = [{"of": "lstm", "set": {key: "x"}}]
    assert "is no setting of a study; write one of what is computed" in refused(systems=systems)
    systems = [{"of": "bilstm", "task": "sentiment", "set": {key: "x"}}]
    assert "is no setting of a study; write one of what is computed" in refused(systems=systems)


VALUES = [
    "1; touch canary", "$(touch canary)", "`touch canary`", "it's", "a\ntouch canary", "a && touch canary", "> canary",
    "| sh", "*", "~", "\\", '"', "a,b", "[1, 2]", "{a: 1}", "!x", "#", "a\tb", "'; touch canary; '",
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES)
def test_the_shell_reads_a_setting_as_one_word(value, canary):
    value = value.replace("canary", str(canary.path))
    systems = [{"of": "bilstm", "task": "sentiment", "init": f"hf:{value}", "set": {"epochs": value}}]
    said = {"corpus": "grammar_tiny", "systems": systems}
    (cell,) = [cell for cell in expand(CONF, "mine", said).cells.values() if cell.stage == "train"]
    assert shlex.split(cell.command)[3:] == [f"{key}={value}" for key, value in cell.settings.items()]
    printed = cell.command.replace("python -m", "printf '%s\\0'", 1)
    done = subprocess.run(["/bin/sh", "-c", printed], capture_output=True, text=True, check=True)
    assert f"epochs={value}\0" in done.stdout and f"init=hf:{value}\0" in done.stdout


def test_commands_are_written_as_they_were():
    said = {"corpus": "grammar_tiny", "systems": [{"of": "lstm", "set": {"a": "[1, 2]", "b": "x,y", "c": "1e-3"}}]}
    study = expand(CONF, "mine", said)
    assert study.cells["pretrain/grammar_tiny/lstm-1"].command.endswith("seed=1 a='[1, 2]' b='x,y' c=1e-3")
    assert "cmd: python -m pipelines.report study=mine\n" in report_graph(study, "lineage")


@pytest.mark.parametrize("text", ["corpus: !!python/object/apply:os.system ['{command}']\n", "[" * 9000, "a: [", "3"])
def test_yaml_makes_nothing_of_a_tag(tmp_path, canary, text):
    (tmp_path / "study").mkdir()
    (tmp_path / "study/mine.yaml").write_text(text.replace("{command}", canary.command))
    with pytest.raises(UsageError, match=r"mine.yaml (is no YAML|names no settings)") as refusal:
        read_study(Conf(tmp_path), "mine")
    assert "\n" not in str(refusal.value)
