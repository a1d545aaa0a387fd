"""Test studies of others: DVC's shell runs none of their commands, and Hydra writes nowhere else."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from pipelines.study import dvc_project
from retable.core.errors import UsageError
from retable.planning.conf import Conf
from retable.planning.graph import params_of, params_text, pipeline_of, settings_of
from retable.planning.study import expand, read_study

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
    systems = [{"of": ["kn3", "lstm"]}]
    for said in (
        refused(systems=[{"of": "lstm", "as": name}]),
        refused(name, systems=systems),
        refused(systems=systems, mixtures={name: ["kn3", "lstm"]}),
    ):
        assert "is not a name; write ASCII letters, digits" in said


@pytest.mark.parametrize("name", ["x;y", "x\ny", "$(x)"])
def test_a_new_study_is_called_as_its_folder(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="is not a name"):
        dvc_project.new(name, ["corpus=grammar_tiny", "systems=kn5"])
    assert not [*tmp_path.iterdir()]


def test_what_configurations_of_a_studys_own_are_called_is_no_command(tmp_path):
    """DVC passes the name of a corpus, and the path that a task sets, to a shell."""
    for file, text in (("corpus/x; touch canary", "write: {}"), ("task/odd", "out: $(touch canary)/${system}")):
        (path := tmp_path / f"{file}.yaml").parent.mkdir()
        path.write_text(f"# @package _global_\ndefaults: [sst2, _self_]\n{text}\n" if "odd" in file else text)
    for said in ({"corpus": "x; touch canary", "systems": [{"of": "kn3"}]},
                 {"corpus": "ptb", "systems": [{"of": "bilstm", "task": "odd"}]}):  # fmt: skip
        with pytest.raises(UsageError, match=r"(is not a valid path; write ASCII letters|may refer only to)"):
            expand(Conf(ROOT / "conf", tmp_path), "mine", said)


@pytest.mark.parametrize("key", [
    "hydra.run.dir", "hydra/launcher", "hydra.searchpath", "+hydra.callbacks.mine._target_", "~hydra.job", "hydra",
    "hydra@x", "model@hydra.callbacks", "+callbacks.mine.dirpath", "callbacks", "+logger.mine._target_", "logger@x",
    "--config-dir", "-m", "--multirun", "--cfg", "a b", "x;touch canary", "x\ny", "", "=", "$(x)", 3,
])  # fmt: skip
def test_what_a_study_sets_is_what_is_computed(key):
    for system in ({"of": "lstm"}, {"of": "bilstm", "task": "sentiment"}):
        assert "is not allowed in a study" in refused(systems=[system | {"set": {key: "x"}}])


VALUES = [
    "1; touch canary", "$(touch canary)", "`touch canary`", "it's", "a\ntouch canary", "a && touch canary", "> canary",
    "| sh", "*", "~", "\\", '"', "a,b", "[1, 2]", "{a: 1}", "!x", "#", "a\tb", "'; touch canary; '",
]  # fmt: skip


def test_the_shell_reads_a_setting_as_one_word(canary):
    for value in (value.replace("canary", str(canary.path)) for value in VALUES):
        systems = [{"of": "bilstm", "task": "sentiment", "init": f"hf:{value}", "set": {"epochs": value}}]
        said = {"corpus": "grammar_tiny", "systems": systems}
        (cell,) = [cell for cell in expand(CONF, "mine", said).cells.values() if cell.stage == "finetune"]
        assert shlex.split(cell.command)[3:] == [f"{key}={value}" for key, value in cell.settings.items()]
        printed = cell.command.replace("python -m", "printf '%s\\0'", 1)
        done = subprocess.run(["/bin/sh", "-c", printed], capture_output=True, text=True, check=True)
        assert f"epochs={value}\0" in done.stdout and f"init=hf:{value}\0" in done.stdout


def test_no_setting_is_in_what_dvc_runs():
    """Settings are only in params.yaml, as they were written."""
    systems = [{"of": "lstm", "as": f"lstm_{n}", "set": {"epochs": value}} for n, value in enumerate(VALUES)]
    study = expand(CONF, "mine", {"corpus": "grammar_tiny", "systems": systems})
    params = yaml.safe_load(params_text(params_of(study, dict.fromkeys(study.cells, ())), "study.yaml"))
    for n, value in enumerate(VALUES):
        assert settings_of(params["pretrain"][f"lstm_{n}-1"])["epochs"] == value
    stages = pipeline_of(study, params, ["code"], "code/retable")["stages"]
    commands = [stage["do"]["cmd"] if "do" in stage else stage["cmd"] for stage in stages.values()]
    for command in commands:
        assert re.fullmatch(r"python -m pipelines\.\w+( @outputs/plan/\w+/\$\{item\.of\.out\}\.yaml)?", command), (
            command
        )
    assert all(re.fullmatch(r"[\w/+-]+", cell.out) for cell in study.cells.values())


@pytest.mark.parametrize("text", ["corpus: !!python/object/apply:os.system ['{command}']\n", "[" * 9000, "a: [", "3"])
def test_yaml_makes_nothing_of_a_tag(tmp_path, canary, text):
    (file := tmp_path / "study.yaml").write_text(text.replace("{command}", canary.command))
    with pytest.raises(UsageError, match=r"study.yaml (is not valid YAML|is not a mapping)") as refusal:
        read_study(Conf(tmp_path), file)
    assert "\n" not in str(refusal.value)
