"""The graph in dvc.yaml names every conf file and every source file that its stages use."""

import ast
import re
import shlex
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from pipelines.entry import CONF

ROOT = CONF.parent
STUDIES = sorted(path.stem for path in (CONF / "study").glob("*.yaml"))
# What only records a run, or reports a mistake; an edit there changes no payload, so no stage depends on it.
RECORDING = {"pipelines/entry.py", "pipelines/sweep.py", "src/retable/artifacts.py", "src/retable/errors.py",
             "src/retable/tracking.py"}  # fmt: skip


# The parts of its config that each application builds objects from; the rest is there to be recorded.
BUILT = {
    "prepare": {"corpus"},
    "tokenize": {"tokenizer"},
    "embed": {"model", "objective", "batches", "optimizer", "schedule"},
    "pretrain": {
        *("model", "objective", "batches", "optimizer", "schedule", "averaging", "scorer", "validation_scorer"),
    },
    "mix": set(),
    "finetune": {"model", "task", "optimizer", "schedule"},
    "tag": {"tagging", "model", "optimizer", "schedule"},
    "answer": {"answering", "model", "optimizer", "schedule"},
    "choose": {"choosing", "model", "optimizer", "schedule"},
    "resolve": {"coreference", "model", "optimizer", "schedule"},
    "translate": {"model", "objective", "batches", "optimizer", "schedule", "averaging", "decoding"},
    "evaluate": {"benchmark"},
    "generate": {"decoding"},
    "scaling": set(),
    "report": set(),
}
# What pipelines.load builds of the config that a system was trained with; of word vectors, a model with n-grams.
LOADED = {"pretrain": {"model", "objective", "batches", "scorer"}, "embed": {"model"}}


@cache
def cells(study: str) -> dict[str, dict]:
    """The cells of a study by stage and name."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return OmegaConf.to_container(compose("params", overrides=[f"study={study}"]))


@cache
def stages(study: str) -> dict[str, dict]:
    """The stages of a study: every template of dvc.yaml with the values of each of its cells."""
    dvc_yaml = OmegaConf.to_container(OmegaConf.load(ROOT / "dvc.yaml"), resolve=False)
    resolved: dict[str, dict] = {}
    for name, definition in dvc_yaml["stages"].items():
        for key, item in cells(study)[name].items():
            values = {"key": key} | {f"item.{field}": value for field, value in item.items()}
            resolved[f"{name}@{key}"] = substitute(definition["do"], values)
    return resolved


def substitute(node, values):
    if isinstance(node, dict):
        return {substitute(k, values): substitute(v, values) for k, v in node.items()}
    if isinstance(node, list):
        return [substitute(part, values) for part in node]
    if isinstance(node, str):
        return re.sub(r"\$\{([\w.]+)\}", lambda match: str(values[match[1]]), node)
    return node


def command(stage: dict) -> tuple[str, list[str]]:
    """The root config that a stage's command composes, and its overrides."""
    words = shlex.split(stage["cmd"])
    assert words[:2] == ["python", "-m"]
    return words[2].removeprefix("pipelines."), words[3:]


def composed(root: str, overrides: Iterable[str]) -> DictConfig:
    """A command's config; one for all seeds, which choose nothing."""
    return _composed(root, tuple(word for word in overrides if not word.startswith(("seed=", "system="))))


@cache
def _composed(root: str, overrides: tuple[str, ...]) -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(root, overrides=list(overrides), return_hydra_config=True)


def conf_files(root: str, overrides: list[str]) -> set[str]:
    """The conf files that a command is composed of: its root, what all share, and each group's choice."""
    cfg = composed(root, overrides)
    choices = {g: c for g, c in cfg.hydra.runtime.choices.items() if not g.startswith("hydra/")}
    return {"conf/app.yaml", f"conf/{root}.yaml"} | {f"conf/{group}/{choice}.yaml" for group, choice in choices.items()}


def source_files(root: str, overrides: list[str]) -> set[str]:
    """The project's files that a command imports: its application, what the config instantiates, and their imports."""
    return closure(frozenset({f"pipelines.{root}", *built(root, overrides, BUILT[root])}))


def built(root: str, overrides: Iterable[str], parts: set[str]) -> set[str]:
    """The modules that hold what these parts of a command's config instantiate."""
    cfg = composed(root, overrides)
    chosen = (OmegaConf.to_container(cfg[part]) for part in sorted(parts & set(cfg)) if OmegaConf.is_config(cfg[part]))
    return {target.rpartition(".")[0] for part in chosen for target in targets(part)}


@cache
def closure(modules: frozenset[str]) -> set[str]:
    """The files of modules and of all that they import."""
    todo, done = set(modules), set()
    while todo:
        done.add(module := todo.pop())
        todo |= imports(module) - done
    return {str(path(module).relative_to(ROOT)) for module in done}


def targets(node):
    if isinstance(node, dict):
        if "_target_" in node:
            yield node["_target_"]
        for value in node.values():
            yield from targets(value)


def path(module: str) -> Path:
    base = ROOT / ("src" if module.startswith("retable") else ".") / module.replace(".", "/")
    return base.with_suffix(".py") if base.with_suffix(".py").exists() else base / "__init__.py"


@cache
def imports(module: str) -> frozenset[str]:
    """The project's modules that a module imports, at its top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path(module).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in ("retable", "pipelines"):
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name for name in inner if path(name).exists()} or {node.module}
    return frozenset(found)


def covered(file: str, dependencies: list[str]) -> bool:
    return any(file == dep or file.startswith(f"{dep}/") for dep in dependencies)


@pytest.mark.parametrize("study", STUDIES)
def test_params_list_the_conf_files_that_are_used(study):
    for name, stage in stages(study).items():
        listed = {next(iter(entry)) for entry in stage["params"]}
        assert conf_files(*command(stage)) == listed, name


@pytest.mark.parametrize("study", STUDIES)
def test_deps_list_the_source_files_that_are_used(study):
    for name, stage in stages(study).items():
        root, overrides = command(stage)
        used = source_files(root, overrides) - RECORDING
        missing = {file for file in used if not covered(file, stage["deps"]) and not file.endswith("__init__.py")}
        assert not missing, name


@pytest.mark.parametrize("study", STUDIES)
def test_deps_list_the_source_files_that_a_system_is_loaded_with(study):
    trained = {
        f"outputs/{verb}/{cell['out']}/model.safetensors": stages(study)[f"{verb}@{key}"]
        for verb in LOADED
        for key, cell in cells(study)[verb].items()
    }
    for name, stage in stages(study).items():
        if name.startswith(("mix@", "evaluate@", "score@", "generate@")):
            for cell in trained.keys() & set(stage["deps"]):
                root, overrides = command(trained[cell])
                used = closure(frozenset(built(root, overrides, LOADED[root]))) - RECORDING
                assert not {file for file in used if not covered(file, stage["deps"])}, (name, cell)


@pytest.mark.parametrize("study", STUDIES)
def test_an_evaluation_measures_by_its_benchmark(study):
    """And depends on no other's module but those that all share: that of a new benchmark makes nothing stale."""
    for key, cell in (cells(study)["evaluate"] | cells(study)["score"]).items():
        target = OmegaConf.load(CONF / "benchmark" / f"{cell['benchmark']}.yaml")._target_
        assert target.rpartition(".")[0] == f"retable.evaluation.{cell['measure']}", key
    for name, stage in stages(study).items():
        assert not {"src/retable/evaluation", "src/retable/generation"} & set(stage["deps"]), name


@pytest.mark.parametrize("study", STUDIES)
def test_every_stage_reads_what_another_writes(study):
    written = {next(iter(out)) if isinstance(out, dict) else out for s in stages(study).values() for out in s["outs"]}
    for name, stage in stages(study).items():
        for dep in stage["deps"]:
            if dep.startswith("outputs/"):
                assert any(covered(dep, [out]) or covered(out, [dep]) for out in written), (name, dep)


@pytest.mark.parametrize("study", STUDIES)
def test_a_stage_depends_on_the_files_of_its_tasks(study, monkeypatch):
    monkeypatch.delenv("RETABLE_DATA", raising=False)
    for name, stage in stages(study).items():
        root, overrides = command(stage)
        if root not in ("prepare", "finetune"):
            continue
        cfg = composed(root, overrides)
        if root == "prepare":
            with initialize_config_dir(str(CONF), version_base="1.3"):
                tasks = [compose(f"task/{task}").task for task in cfg.corpus.get("tasks", ())]
            assert not tasks or "conf/task" in stage["deps"], name
        else:
            cfg.text, tasks = cfg.hydra.runtime.choices.corpus, [cfg.task]  # which only a running job resolves
        for path in (path for task in tasks for path in instantiate(task).paths):
            assert covered(str(path), stage["deps"]), name


@pytest.mark.parametrize("study", STUDIES)
def test_a_mixture_depends_on_its_cells(study):
    for name, stage in stages(study).items():
        if name.startswith("mix@"):
            (cells,) = (word.removeprefix("cells=") for word in command(stage)[1] if word.startswith("cells="))
            weights = {f"outputs/{cell}/model.safetensors" for cell in cells.strip("[]").split(",")}
            assert weights == {dep for dep in stage["deps"] if dep.endswith("model.safetensors")}, name


@pytest.mark.parametrize("study", STUDIES)
def test_cells_are_named_after_their_outputs(study):
    """A table's cell leads to its stage by name, and a command writes where the graph expects it."""
    for name, stage in stages(study).items():
        verb, _, key = name.replace("score@", "evaluate@").partition("@")
        (out,) = (next(iter(out)) if isinstance(out, dict) else out for out in stage["outs"])
        assert out == (f"results/{key}" if verb == "report" else f"outputs/{verb}/{key.replace('-', '/', 1)}")


def test_the_current_study_is_composed_from_conf():
    params = OmegaConf.load(ROOT / "params.yaml")
    with initialize_config_dir(str(CONF), version_base="1.3"):
        assert params == compose("params", overrides=[f"study={params.study}"])


def test_every_output_can_be_restored_from_the_cache():
    """DVC's run cache is off for a stage with a persistent output, or an uncached one."""
    for name, stage in stages("lineage").items():
        for out in stage["outs"]:
            settings = next(iter(out.values())) if isinstance(out, dict) else {}
            assert settings == ({"cache": False} if name.startswith("report@") else {}), name
