"""Test that every configuration composes, and that what it names exists."""

from itertools import zip_longest
from pathlib import Path

import pandas as pd
import pytest
from hydra import compose, initialize_config_dir
from hydra.utils import get_class, get_method
from omegaconf import DictConfig, OmegaConf

from pipelines.config.project import CONF, STUDIES
from retable.core.artifacts import read_json
from retable.planning.conf import Conf
from retable.planning.study import read_study
from tests.pipelines.recipes import composed

STAGES = (
    "prepare", "tokenize", "embed", "pretrain", "adapt", "mix", "finetune", "evaluate", "generate", "scaling",
    "report",
)  # fmt: skip
GROUPS = {
    "corpus": "tokenize", "tokenizer": "tokenize", "model": "pretrain", "objective": "pretrain",
    "optimizer": "pretrain", "schedule": "pretrain", "task": "finetune", "benchmark": "evaluate",
    "decoding": "generate", "adaptation": "adapt", "trainer": "pretrain", "callbacks": "pretrain",
    "logger": "pretrain", "debug": "pretrain", "scaling": "scaling",
}  # fmt: skip
CHOICES = [  # several choices at once, each of another group
    (stage, [choice for choice in chosen if choice])
    for stage in dict.fromkeys(GROUPS.values())
    for chosen in zip_longest(*(
        [f"{group}={path.stem}" for path in sorted((CONF / group).glob("*.yaml"))]
        for group in GROUPS if GROUPS[group] == stage
    ))
]  # fmt: skip
OF_RECIPES = {"scorer": "lstm", "corruption": "t5"}  # groups that some recipes lack, each with a recipe that has it


def targets(node):
    if isinstance(node, dict):
        if "_target_" in node:
            yield node["_target_"]
        for value in node.values():
            yield from targets(value)


def compose_config(stage: str, overrides: list[str], hydra: bool = False) -> DictConfig:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return compose(stage, overrides=overrides, return_hydra_config=hydra)


def check(cfg: DictConfig) -> None:
    plain = OmegaConf.to_container(cfg)
    plain.pop("hydra", None)
    for target in targets(plain):
        named = get_class(target) if target.rpartition(".")[2][0].isupper() else get_method(target)
        assert callable(named)


@pytest.mark.parametrize("stage", STAGES)
def test_root_composes(stage):
    check(compose_config(stage, []))


@pytest.mark.parametrize(
    ("stage", "choices"), CHOICES, ids=lambda part: part if isinstance(part, str) else "-".join(part)
)
def test_choices_compose(stage, choices):
    check(compose_config(stage, choices))


@pytest.mark.parametrize("group", OF_RECIPES)
def test_choice_of_a_recipe_composes(group):
    for path in (CONF / group).glob("*.yaml"):
        check(composed("pretrain", OF_RECIPES[group], f"{group}={path.stem}"))


def test_every_group_is_covered():
    """Excluded are task types (shared by tasks), tables (of reports), data sets (of `retable fetch`), and two groups of
    `-m`: no stage chooses them.

    The optimizer is chosen by the recipe's tuning.
    """
    others = {"recipe", "task_type", "tuning", "table", "data", "hydra", "sweep"}
    assert {path.name for path in CONF.iterdir() if path.is_dir()} == {*GROUPS, *OF_RECIPES, *others}


def test_a_choice_on_the_command_line_takes_the_place_of_the_recipes():
    cfg = composed("pretrain", "lstm", "model=gru", "optimizer=sgd", "objective=sampled_softmax", "optimizer.lr=1")
    targets = [cfg[part]._target_.rpartition(".")[2] for part in ("model", "optimizer", "objective")]
    assert targets == ["GRU", "sgd", "SampledSoftmax"] and cfg.optimizer.lr == 1
    assert cfg.model.d_model == composed("pretrain", "lstm").model.d_model


def test_data_folder_comes_from_the_environment(monkeypatch):
    monkeypatch.setenv("RETABLE_DATA", "elsewhere")
    cfg = compose_config("prepare", ["corpus=ptb"])
    assert Path(cfg.corpus.write.train) == Path("elsewhere/ptb/ptb.train.txt")


@pytest.mark.parametrize(("corpus", "scale"), [("grammar", 1.0), ("grammar_tiny", 0.3), ("ptb", 1.0)])
def test_the_grammar_that_judges_is_the_one_that_wrote_the_corpus(corpus, scale):
    bounds = ["masked_bound", "sentence_pairs_bound", "spans_bound", "replaced_bound"] * (corpus != "ptb")
    names = ["phenomena", "sampling", *bounds]
    cfg = compose_config("evaluate", [f"benchmark=[{','.join(names)}]", f"corpus={corpus}"])
    for name in names:
        language = cfg.benchmark[name].language
        assert (language.grammar if name in bounds else language).scale == scale, name


def test_every_benchmark_is_composed_under_its_own_name():
    names = Conf(CONF).names("benchmark")
    assert [*compose_config("evaluate", [f"benchmark=[{','.join(names)}]"]).benchmark] == names


def test_the_smoke_study_has_bands_for_its_tables():
    bands = read_study(Conf(CONF), STUDIES / "smoke/study.yaml").reported["bands"]
    assert {"perplexity", "tasks"} <= set(bands)
    for rows in bands.values():
        assert all(low < high for *_, low, high in rows)


def test_every_row_of_the_gallery_has_a_band():
    """Except oracles, which are the ends of bands."""
    bands = read_study(Conf(CONF), STUDIES / "gallery/study.yaml").reported["bands"]
    for path in (STUDIES / "gallery/results").glob("*.csv"):
        rows = pd.read_csv(path)
        if {"system", "task", "metric"} <= set(rows) and path.stem != "tokenizers":
            trained = rows[~rows["runs"].str.startswith("prepare/", na=True)]["system"]
            assert {*trained} <= {system for system, *_ in bands[path.stem]}, path.stem


def test_no_two_systems_of_the_gallery_are_one():
    """If toy sizes remove all differences between two recipes, their numbers are equal in every digit."""
    metrics = read_json(STUDIES / "gallery/results/metrics.json")
    assert len(metrics) > 80 and len({*map(str, metrics.values())}) == len(metrics)


@pytest.mark.parametrize("path", sorted((CONF / "sweep").glob("*.yaml")), ids=lambda path: path.stem)
def test_a_sweep_of_its_own_file_composes(path):
    """A sweep of discrete values is a grid; a sweep with intervals is a search."""
    cfg = compose_config("pretrain", ["recipe=recurrent/lstm", f"+sweep={path.stem}"], hydra=True)
    searches = any("interval(" in str(values) for values in cfg.hydra.sweeper.params.values())
    assert cfg.hydra.sweeper._target_ == f"hydra_plugins.retable.{'Search' if searches else 'Grid'}"
    assert cfg.hydra.sweeper.params
