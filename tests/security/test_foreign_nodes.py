"""Test that a configuration file of others runs no command, reads no secret and writes nowhere else."""

import codecs
from functools import cache
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf.errors import OmegaConfBaseException

from pipelines.app.stage import stage
from pipelines.config.guard import refuse_foreign_nodes
from pipelines.config.project import CONF
from pipelines.execute.adopt import adopt
from pipelines.study import dvc_project
from pipelines.study.compose import composing, plan_of, set_study
from retable.core.artifacts import write_json
from retable.core.errors import UsageError

CALL = {"_target_": "mlflow.utils.process._exec_cmd", "cmd": ["touch", "canary"]}
NODES = {
    "hydra.callbacks": {"hydra": {"callbacks": {"x": CALL}}},
    "hydra.job_logging": {"hydra": {"job_logging": {"handlers": {"x": {"()": "os.system"}}}}},
    "hydra.hydra_logging": {"hydra": {"hydra_logging": {"handlers": {"x": {"()": "os.system"}}}}},
    "hydra.sweeper": {"hydra": {"sweeper": {"pruner": CALL}}},
    "hydra.launcher": {"hydra": {"launcher": CALL}},
    "hydra.job": {"hydra": {"job": {"env_set": {"PATH": "evil"}, "chdir": True}}},
    "hydra.run": {"hydra": {"run": {"dir": "/elsewhere"}}},
    "hydra.searchpath": {"hydra": {"searchpath": ["pkg://evil"]}},
    "callbacks.x": {"callbacks": {"x": {"_target_": "evil.Callback"}}},
    "logger.csv": {"logger": {"csv": {"_target_": "lightning.pytorch.loggers.CSVLogger", "save_dir": "/elsewhere"}}},
    "trainer.default_root_dir": {"trainer": {"default_root_dir": "/elsewhere"}},
    "trainer.profiler": {"trainer": {"profiler": {"_target_": "evil.Profiler"}}},
}
# The files in the root of conf/ are stages, except the first; folders of conf/ and of hydra/ are groups.
STAGES = sorted({each.stem for each in CONF.glob("*.yaml")} - {"app"}, key=lambda stage: (stage != "pretrain", stage))
FOLDERS = [each for each in (*CONF.iterdir(), *(CONF / "hydra").iterdir()) if each.is_dir()]
GROUPS = sorted({each.relative_to(CONF).as_posix() for each in FOLDERS} - {"hydra"})


@cache
def chosen(stage: str) -> set[str]:
    """Return the groups of which a stage reads a file by default."""
    defaults = yaml.safe_load((CONF / f"{stage}.yaml").read_text(encoding="utf-8"))["defaults"]
    own = {group for each in defaults if isinstance(each, dict) for group in each}  # also if the choice is a list
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return own | {*compose(stage, overrides=[], return_hydra_config=True).hydra.runtime.choices}


def foreign(folder: Path, group: str, content: dict, package: str = "_global_") -> tuple[str, list[str]]:
    """Write a file of a group into a foreign folder. Return the stage that reads it, and a command line."""
    stage = next((stage for stage in STAGES if group in chosen(stage)), STAGES[0])
    choice = "evil/x" if group == "recipe" else "x"
    (file := folder / group / f"{choice}.yaml").parent.mkdir(parents=True)
    file.write_text(f"# @package {package}\n{yaml.safe_dump(content)}", encoding="utf-8")
    given = ["corpus=grammar_tiny"] if group != "corpus" and "corpus" in chosen(stage) else []
    return stage, [f"--config-dir={folder}", *given, f"{'+' * (group not in chosen(stage))}{group}={choice}"]


def refused(stage: str, arguments: list[str], named: str = "") -> None:
    with pytest.raises(UsageError, match=f"{named}.*, which only the command line may set"):
        refuse_foreign_nodes(stage, arguments)


@pytest.fixture(params=["--config-dir", "the conf/ of the study's folder"])
def refused_from(request, tmp_path, monkeypatch):
    """Write a file of a group where others may write, and check that the stage refuses it."""

    def check(group: str, name: str) -> None:
        place = tmp_path / name
        stage, arguments = foreign(place / "conf", group, NODES[name])
        if request.param != "--config-dir":
            (place / "study.yaml").touch()
            monkeypatch.chdir(place)
            arguments = arguments[1:]
        refused(stage, arguments, named=f"sets {name.partition('.')[0]}")

    return check


@pytest.mark.parametrize("name", NODES)
def test_no_foreign_file_sets_what_is_the_command_lines(name, refused_from):
    refused_from("recipe", name)


@pytest.mark.parametrize("group", sorted({*GROUPS} - {"recipe"}))
def test_no_foreign_group_sets_what_is_the_command_lines(group, refused_from):
    for name in ("hydra.callbacks", "trainer.default_root_dir"):
        refused_from(group, name)


@pytest.mark.parametrize(("sweeper", "runs"), [
    ({"n_trials": 2, "params": {"optimizer.lr": "interval(0, 1)"}}, True), ({"pruner": CALL}, False),
    ({"pruner": "${model}"}, False), ({"storage": "sqlite:////elsewhere/x.db"}, False),
])  # fmt: skip
def test_a_search_of_ones_own_sets_the_sweeper_but_no_class_and_no_database(sweeper, runs, tmp_path):
    content = {"defaults": [{"override /hydra/sweeper": "optuna"}], "hydra": {"sweeper": sweeper}}
    stage, arguments = foreign(tmp_path, "sweep", content)
    if runs:
        refuse_foreign_nodes(stage, arguments)
    else:
        refused(stage, arguments, named="sets hydra")


def test_a_file_whose_header_or_defaults_name_the_node(tmp_path):
    before = ["/recipe/counted/kn3"]
    defaults = [
        [*before, "_self_", {"override /hydra/job_logging": "none"}],
        [*before, "/model/lstm@hydra.callbacks.x", "_self_"],
        [*before, {"/model@_global_.hydra.callbacks": "lstm"}, "_self_"],
    ]
    files = [(CALL, "hydra.callbacks.x"), ({"default_root_dir": "/elsewhere"}, "trainer")]
    files += [({"defaults": entries}, "_global_") for entries in defaults]
    for number, (content, package) in enumerate(files):
        refused(*foreign(tmp_path / str(number), "recipe", content, package))


def test_a_folder_of_the_search_path(tmp_path):
    stage, arguments = foreign(tmp_path, "recipe", NODES["hydra.callbacks"])
    arguments[0] = f"hydra.searchpath=[file://{tmp_path}]"
    with pytest.raises(UsageError, match=r"sets hydra, which"):
        refuse_foreign_nodes(stage, arguments)
    with pytest.raises(UsageError, match=r"hydra.searchpath=pkg://evil is not a folder"):
        refuse_foreign_nodes(stage, ["hydra.searchpath=[pkg://evil]"])


def test_a_file_with_a_tag_of_python(tmp_path):
    stage, arguments = foreign(tmp_path, "recipe", {})
    (tmp_path / "recipe/evil/x.yaml").write_text("# @package _global_\nx: !!python/object/apply:os.system [ls]\n")
    with pytest.raises(UsageError, match=r"cannot be read: could not determine a constructor .* in .*x\.yaml"):
        refuse_foreign_nodes(stage, arguments)


def test_a_file_that_begins_with_a_byte_order_mark(tmp_path):
    """Hydra does not find a header after the mark, so the settings would go to another place."""
    stage, arguments = foreign(tmp_path, "recipe", {"defaults": ["/recipe/counted/kn3", "_self_"]})
    file = tmp_path / "recipe/evil/x.yaml"
    refuse_foreign_nodes(stage, arguments)
    file.write_bytes(codecs.BOM_UTF8 + file.read_bytes())
    with pytest.raises(UsageError, match=r"x\.yaml begins with a byte-order mark; save the file as UTF-8 without"):
        refuse_foreign_nodes(stage, arguments)


def test_what_retable_has_itself_is_composed(tmp_path):
    refuse_foreign_nodes("pretrain", ["corpus=grammar_tiny", "recipe=recurrent/lstm", "logger=csv", "debug=profiler"])
    refuse_foreign_nodes(
        "pretrain", ["-m", "corpus=grammar_tiny", "recipe=recurrent/lstm,recurrent/gru", "+sweep=lstm_lr"]
    )
    stage, arguments = foreign(
        tmp_path, "recipe", {"defaults": ["/recipe/counted/kn3", "_self_"], "trainer": {"devices": 2}}
    )
    refuse_foreign_nodes(stage, arguments)


def test_the_stage_ends_before_anything_runs(tmp_path, monkeypatch, capsys):
    (work := tmp_path / "work").mkdir()
    monkeypatch.chdir(work)
    content = {"defaults": ["/recipe/counted/kn3", "_self_"], **NODES["hydra.callbacks"]}
    _, arguments = foreign(tmp_path / "mine", "recipe", content)
    (plan := tmp_path / "plan.yaml").write_text("settings: {+hydra.callbacks.x: '{_target_: evil}'}\n")

    @stage
    def pretrain(cfg) -> None:
        raise AssertionError("the stage began")

    for given, named in (
        (arguments, "recipe/evil/x.yaml sets hydra"),
        ([f"@{plan}"], "sets +hydra.callbacks.x"),
    ):
        monkeypatch.setattr("sys.argv", ["pretrain", *given])
        with pytest.raises(SystemExit) as ended:
            pretrain()
        (line,) = capsys.readouterr().err.splitlines()
        assert ended.value.code == 2 and line.startswith("error: ") and named in line
        assert not [*work.iterdir()]


@pytest.mark.parametrize("override", ["+model.x=${oc.env:SECRET}", "corpus.unit=${oc.env:SECRET,none}"])
def test_no_variable_but_the_data_folder_is_read(override, monkeypatch):
    monkeypatch.setenv("SECRET", "hunter2")
    with initialize_config_dir(str(CONF), version_base="1.3"), pytest.raises(OmegaConfBaseException) as refused:
        cfg = compose("pretrain", overrides=["corpus=ptb", override])
        assert cfg.corpus.write.train.endswith("ptb/ptb.train.txt")
        str(cfg.model.get("x"))
        str(cfg.corpus.unit)
    assert "oc.env:SECRET} is not allowed" in str(refused.value) and "hunter2" not in str(refused.value)


@pytest.mark.parametrize("where", ["corpus", "recipe", "study"])
def test_no_variable_is_in_what_a_study_commits(where, tmp_path, monkeypatch):
    """`retable graph` and plans keep settings as they are written, or refuse them without printing the value."""
    monkeypatch.setenv("SECRET", "hunter2")
    monkeypatch.chdir(tmp_path)
    secret = {each: "${oc.env:SECRET}" if each == where else "3" for each in ("corpus", "recipe", "study")}
    texts = dict.fromkeys(("train", "validation", "test"), f"data/{secret['corpus']}.txt")
    of_recipe, of_study = ({"order": secret["recipe"]}, {"model.order": secret["study"]})
    files = {
        "conf/corpus/mine": {"unit": "line", "write": {"_target_": "retable.corpora.text.write_corpus", **texts}},
        "conf/recipe/own": {"defaults": ["/recipe/counted/kn3", "_self_"], "model": of_recipe},
        "study": {"corpus": "mine", "systems": [{"of": "own"} | ({"set": of_study} if where == "study" else {})]},
    }
    for name, content in files.items():
        (path := tmp_path / f"{name}.yaml").parent.mkdir(parents=True, exist_ok=True)
        path.write_text("# @package _global_\n" * ("recipe" in name) + yaml.safe_dump(content), encoding="utf-8")
    said = ""
    try:
        dvc_project.graph()
        study = set_study()
        with composing():
            for cell in study.cells.values():
                plan_of(cell, study.cells)
    except (UsageError, OmegaConfBaseException) as error:
        said = str(error)
    assert "SECRET} is not allowed" in said and "hunter2" not in said
    committed = [path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.yaml")]
    assert len(committed) >= len(files) and not [text for text in committed if "hunter2" in text]


@pytest.mark.parametrize(
    "recipe", ["../../../victim", "/etc/victim", "recurrent/../../../victim", "recurrent//lstm", ""]
)
def test_a_sweep_from_elsewhere_changes_no_file_outside_of_the_recipes(recipe, tmp_path, monkeypatch):
    (sweep := tmp_path / "a/b/c/multirun/pretrain/x").mkdir(parents=True)
    (victim := tmp_path / "victim.yaml").write_text("optimizer: {lr: 1}\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path / "a/b/c")
    write_json(sweep / "sweep.json", {"stage": "pretrain", "overrides": [], "recipe": recipe})
    facts = "trial,state,value,step,seconds,cell,metric,direction,optimizer.lr"
    (sweep / "trials.csv").write_text(f"{facts}\n0,complete,1.0,,1,x,validation/loss,minimize,0.5\n", encoding="utf-8")
    with pytest.raises(UsageError, match="is not a file in conf/recipe"):
        adopt("multirun/pretrain/x")
    assert victim.read_text(encoding="utf-8") == "optimizer: {lr: 1}\n"
