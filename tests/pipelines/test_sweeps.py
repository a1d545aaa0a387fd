"""Test multiruns and searches: each job makes a cell in a separate process on separate devices.

No job is lost or done twice.
"""

import io
import shutil
import sys
import threading
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pandas as pd
import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from mlflow.tracking import MlflowClient
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.trial import TrialState
from rich.console import Console

from pipelines.app import run_folder
from pipelines.config.project import CONF
from pipelines.execute.adopt import adopt, changed, written_at
from pipelines.execute.grid import Grid, leave, show
from pipelines.execute.launcher import in_parallel
from pipelines.execute.optuna_search import Search, corners, distribution, rounded
from pipelines.execute.progress import StudyProgress
from retable.core import artifacts
from retable.core.artifacts import read_json, write_json
from retable.core.errors import UsageError
from retable.planning.conf import Conf, flat
from tests.pipelines.conftest import ROOT, Project

SMALL = ["corpus=grammar_tiny", "model.d_model=8", "epochs=0.1", "batches.batch_size=4"]
OPTUNA = [*SMALL, "hydra/sweeper=optuna", "optimizer.lr=tag(log,interval(1e-3,1e-2))", "hydra.sweeper.study_name=rates"]


@pytest.fixture
def sweeping(project, tmp_path) -> Project:
    """Return a project with only tokens."""
    made = Project.new(tmp_path, project.forks)
    for stage in ("prepare", "tokenize"):
        shutil.copytree(project.folder / "outputs" / stage, made.folder / "outputs" / stage)
    return made


def cells(project: Project) -> dict[str, float]:
    """Return the cells of stage pretrain, with the times at which their weights were written."""
    weights = project.folder.glob("outputs/pretrain/grammar_tiny/*/model.safetensors")
    return {path.parent.name: path.stat().st_mtime_ns for path in weights}


def runs(project: Project) -> list:
    client = MlflowClient(f"sqlite:///{project.folder / 'mlflow.db'}")
    (experiment,) = client.search_experiments(filter_string="name = 'retable'")
    return client.search_runs([experiment.experiment_id])


def ledger(project: Project, name: str = "*") -> pd.DataFrame:
    (path,) = project.folder.glob(f"multirun/pretrain/{name}/trials.csv")
    return pd.read_csv(path)


def refused(project: Project, *words: str) -> str:
    done = project.run("pretrain", "-m", *words)
    assert done.returncode == 2 and not (project.folder / "outputs/pretrain").exists()
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    return line


def search(metric: str) -> Search:
    return Search(metric, None, None, 1, None, None, 1, optuna.samplers.RandomSampler, optuna.pruners.NopPruner())


@pytest.mark.long
def test_a_metric_that_the_first_job_lacks_ends_the_sweep(sweeping):
    done = sweeping.run("pretrain", "-m", "corpus=grammar_tiny", "recipe=counted/unigram,counted/kn3",
                        "hydra.launcher.n_jobs=1", "+hydra.sweeper.metric=nope")  # fmt: skip
    line = done.stderr.splitlines()[-1]
    assert done.returncode == 2 and [*cells(sweeping)] == ["unigram-1"]
    assert line.startswith(
        "error: hydra.sweeper.metric=nope: outputs/pretrain/grammar_tiny/unigram-1 does not have this metric;"
    )


@pytest.mark.parametrize(
    "sweep", [Grid("validation/los", None, None), search("validation/los")], ids=["grid", "optuna"]
)
def test_the_metric_of_a_sweep_is_that_of_each_job(sweep):
    def job(code, **metrics):
        return SimpleNamespace(code=code, cell="x-1", metrics={name.replace("_", "/"): 1.0 for name in metrics})

    assert sweep.metric_of([job(1), job(0, validation_los=1), job(None)]) == "validation/los"
    message = "^hydra.sweeper.metric=validation/los: x-1 does not have this metric; "
    losses = {"validation_loss": 1, "steps": 1}
    for names, advice in ((losses, "write validation/loss"), ({}, "sweep the stage evaluate")):
        with pytest.raises(UsageError, match=f"{message}{advice}$"):
            sweep.metric_of([job(0, validation_los=1), job(0, **names)])


def test_jobs_are_cells_under_one_parent_and_made_once(sweeping):
    command = ["pretrain", "-m", *SMALL, "recipe=recurrent/lstm,recurrent/elman"]
    done = sweeping.succeed(*command)
    made = cells(sweeping)
    assert set(made) == {f"{system}-1+batches.batch_size-4+epochs-0.1+model.d_model-8" for system in ("lstm", "elman")}
    assert f"best: outputs/pretrain/grammar_tiny/{best(ledger(sweeping))}" in done.stdout
    (parent,) = [run for run in runs(sweeping) if run.data.tags["retable.stage"] == "sweep"]
    children = [run for run in runs(sweeping) if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    assert sorted(run.info.run_name for run in children) == sorted(made)
    assert {run.info.status for run in [parent, *children]} == {"FINISHED"}
    shutil.rmtree(sweeping.folder / "multirun")
    again = sweeping.succeed(*command)
    assert again.stderr.count("exists already") == 2 and cells(sweeping) == made
    assert len(runs(sweeping)) == 4  # a second parent run, but no second child
    assert not [*(sweeping.folder / "work").glob("pretrain")]
    cell = min(made)  # evaluated like any other cell
    sweeping.succeed("evaluate", "corpus=grammar_tiny", f"cell=grammar_tiny/{cell}")
    assert sweeping.read(f"evaluate/grammar_tiny/{cell}/perplexity/metrics.json")["test/perplexity_word"] > 1


def best(trials: pd.DataFrame) -> str:
    return Path(trials.loc[trials["value"].idxmin(), "cell"]).name


@pytest.mark.long
def test_two_processes_a_job_leave_a_cell_and_a_run_each(sweeping):
    done = sweeping.succeed(
        "pretrain", "-m", *SMALL, "recipe=recurrent/lstm,recurrent/elman", "trainer=ddp", "trainer.accelerator=cpu",
        "trainer.devices=2",
    )  # fmt: skip
    assert sorted(name.partition("+")[0] for name in cells(sweeping)) == ["elman-1", "lstm-1"], done.stderr
    assert len(runs(sweeping)) == 3
    assert [path.name for path in (sweeping.folder / "multirun/pretrain").iterdir()] == [*{
        path.parent.name for path in sweeping.folder.glob("multirun/pretrain/*/trials.csv")
    }]  # fmt: skip


def test_a_job_that_fails_is_reported_and_the_others_run(sweeping):
    done = sweeping.run("pretrain", "-m", *SMALL, "recipe=recurrent/lstm", "init=random,pretrain/grammar_tiny/none-1")
    assert done.returncode == 1
    (line,) = [line for line in done.stderr.splitlines() if "failed: " in line]
    assert "outputs/pretrain/grammar_tiny/none-1" in line and "is missing" in line and ".log" in line
    assert "1 of 2 jobs failed" in done.stderr
    assert ledger(sweeping)["state"].tolist() == ["complete", "failed"] and len(cells(sweeping)) == 1


@pytest.mark.parametrize(("words", "message"), [
    (["model.d_model=8,0"], "job 1, "),
    (["recipe=recurrent/lstm,recurrent/lstn"], "recurrent/lstm"),
    (["model.d_model=8", "optimizer.lr=1e-3,1e-3"], "jobs 0 and 1 are the same"),
    (["optimizer.lr=interval(1e-3,1e-2)"], "hydra/sweeper=optuna"),
    (["seed=1,2", "hydra/launcher=basic"], "remove hydra/launcher=basic"),
    (["seed=1,2", "hydra.launcher.n_jobs=0"], "write 1 or more"),
    (["seed=1,2", "hydra.sweeper.direction=up"], "minimize or maximize"),
    (["seed=1,2", "hydra/sweeper=optuna", "hydra.sweeper.n_trials=0"], "write 1 or more"),
    (["hydra/sweeper=optuna"], "no setting is varied"),
    (["hydra/sweeper=optuna", "optimizer.lr=interval(1e-2,1e-3)"], "is invalid; write the lower end first"),
    (["hydra/sweeper=optuna", "model.d_model=range(0,9)"], "model.d_model=0"),
    (["hydra/sweeper=optuna", "seed=1,2", "hydra.sweeper.storage=nowhere://x"], "hydra.sweeper.storage=nowhere"),
])  # fmt: skip
def test_what_cannot_be_is_refused_before_the_first_job(sweeping, words, message):
    assert message in refused(sweeping, "corpus=grammar_tiny", *words)


@pytest.mark.long
def test_a_search_goes_on_to_its_end_and_further(sweeping):
    sweeping.succeed("pretrain", "-m", *OPTUNA, "hydra.sweeper.n_trials=2")
    made = cells(sweeping)
    done = sweeping.succeed("pretrain", "-m", *OPTUNA, "hydra.sweeper.n_trials=4")
    trials = ledger(sweeping, "rates")
    assert trials["trial"].tolist() == [0, 1, 2, 3] and set(trials["state"]) == {"complete"}
    assert trials["optimizer.lr"].between(1e-3, 1e-2).all() and trials["optimizer.lr"].nunique() == 4
    assert set(made.items()) <= set(cells(sweeping).items()) and len(cells(sweeping)) == 4
    assert [Path(cell).name for cell in trials["cell"]] == [
        f"lstm-1+rates.{i}+optimizer.lr-{lr:.3g}" for i, lr in enumerate(trials["optimizer.lr"])
    ]
    assert f"best: outputs/pretrain/grammar_tiny/{best(trials)}" in done.stdout
    assert len([run for run in runs(sweeping) if run.data.tags["retable.stage"] == "sweep"]) == 1
    page = (sweeping.folder / "multirun/pretrain/rates/report.html").read_text()
    assert all(title in page for title in ("History", "Settings and values", "Expected best", "Importance"))
    done = sweeping.run("pretrain", "-m", *OPTUNA, "epochs=0.2")
    line = done.stderr.splitlines()[-1]
    assert done.returncode == 2 and "rates is another search, with fixed" in line and "study_name" in line


@pytest.mark.long
def test_what_a_killed_worker_left_is_gone_on_with_and_what_failed_tried_again(sweeping):
    sweeping.succeed("pretrain", "-m", *OPTUNA, "hydra.sweeper.n_trials=1")
    study = optuna.load_study(study_name="rates", storage=storage(sweeping))
    study.ask().suggest_float("optimizer.lr", 1e-3, 1e-2, log=True)  # as if a worker was killed here
    study.ask()  # as if a worker was killed before it drew a value
    failed = study.ask()
    rate = failed.suggest_float("optimizer.lr", 1e-3, 1e-2, log=True)
    study.tell(failed, state=TrialState.FAIL)
    sweeping.succeed("pretrain", "-m", *OPTUNA, "hydra.sweeper.n_trials=4", "hydra.launcher.n_jobs=1")
    trials = ledger(sweeping, "rates").set_index("trial")
    assert trials["state"].to_dict() == {0: "complete", 1: "complete", 2: "complete", 3: "failed", 4: "complete"}
    assert trials.loc[4, "optimizer.lr"] == rate
    sweeping.succeed("pretrain", "-m", *OPTUNA, "hydra.sweeper.n_trials=4")
    assert len(ledger(sweeping, "rates")) == 5  # a failed trial is tried once more


def test_a_trial_that_another_worker_has_told_of_meanwhile_is_not_run_again(tmp_path):
    study = optuna.create_study(storage=f"sqlite:///{tmp_path / 'trials.db'}", study_name="rates")
    reported, left = study.ask(), study.ask()
    search = Search.__new__(Search)
    search._study, search._n_trials, search._failed, search._claims = study, 2, 0, {}
    search._space, search._seed, search._sampler = {}, 1, optuna.samplers.RandomSampler
    search._ask_lock, search._exclusive = threading.Lock(), nullcontext

    def claim(number: int) -> bool:
        if number == reported.number and number not in search._claims:
            study.tell(reported, 1.0)
        search._claims[number] = True
        return True

    search._claim, search._release = claim, search._claims.pop
    assert search._next().number == left.number and [*search._claims] == [left.number]


def test_a_trial_that_was_left_undrawn_has_the_values_of_an_undisturbed_search():
    """A worker was killed after it had asked for a trial, before its values were drawn."""
    storage = optuna.storages.InMemoryStorage()

    def values(name: str, left: int | None) -> list[dict[str, Any]]:
        search = Search.__new__(Search)
        search._study = optuna.create_study(storage=storage, study_name=name)
        search._n_trials, search._failed, search._seed, search._sampler = 4, 0, 1, optuna.samplers.RandomSampler
        search._space = {"lr": FloatDistribution(1e-3, 1e-2, log=True), "width": IntDistribution(8, 512)}
        search._ask_lock, search._exclusive, search._claim = threading.Lock(), nullcontext, lambda number: True
        while True:
            if len(search._study.trials) == left:
                search._study.ask()
            if (trial := search._next()) is None:
                return [each.params for each in search._study.trials]
            search._study.tell(trial, 1.0)

    undisturbed = values("undisturbed", None)
    assert len({each["lr"] for each in undisturbed}) == 4
    assert all(values(f"left at {n}", n) == undisturbed for n in range(4))


@pytest.mark.parametrize("moment", ["write_record", "_finish", "rmtree"])
def test_a_job_that_ends_behind_its_cell_ends_its_run_when_it_runs_again(sweeping, monkeypatch, moment):
    """The job is killed when its cell is in place, but its run is still open or its scratch folder remains."""
    command = ["pretrain", "corpus=grammar_tiny", "recipe=counted/unigram"]
    where = {"write_record": artifacts, "_finish": run_folder, "rmtree": shutil}[moment]
    remove = shutil.rmtree

    def ends(path, *args, **named):
        if moment != "rmtree":
            sys.exit(137)
        if Path(path).parent.name == "unigram-1+job":
            Path(path, "left").touch()
            sys.exit(137)
        remove(path, *args, **named)

    with monkeypatch.context() as patch:
        patch.setattr(where, moment, ends)
        assert sweeping.run(*command, RETABLE_JOB_SUFFIX="+job").returncode == 137
    cell = sweeping.folder / "outputs/pretrain/grammar_tiny/unigram-1+job"
    assert (cell / "metrics.json").exists()
    sweeping.succeed(*command, RETABLE_JOB_SUFFIX="+job")
    (run,) = [run for run in runs(sweeping) if run.info.run_name == "unigram-1+job"]
    assert run.info.status == "FINISHED" and run.data.metrics.keys() >= read_json(cell / "metrics.json").keys()
    assert not [*sweeping.folder.glob("work/pretrain")]


@pytest.mark.long
def test_a_trial_that_cannot_be_fails_alone(sweeping):
    """The number of heads does not divide the width, although each value is valid."""
    space = ["recipe=transformer/gpt", "model.n_heads=choice(2,3)", "model.d_model=choice(12,16)", "model.n_layers=1"]
    ends = ["hydra/sweeper=optuna", "hydra.sweeper.study_name=heads", "hydra.sweeper.n_trials=6", "batches.length=16"]
    done = sweeping.run("pretrain", "-m", "corpus=grammar_tiny", "epochs=0.1", *space, *ends, "hydra.sweeper.seed=2")
    trials = ledger(sweeping, "heads")
    cannot = (trials["model.n_heads"] == 3) & (trials["model.d_model"] == 16)
    assert len(trials) == 6 and 0 < cannot.sum() < 6
    assert (trials["state"] == "failed").equals(cannot) and done.returncode == 1
    assert f"{cannot.sum()} trials failed" in done.stderr and "  failed: " in done.stderr


def storage(project: Project) -> str:
    return f"sqlite:///{project.folder / 'multirun/pretrain/rates/trials.db'}"


@pytest.mark.long
def test_two_workers_share_a_search(sweeping):
    command = ["pretrain", "-m", *OPTUNA, "hydra.sweeper.n_trials=5", "hydra.launcher.n_jobs=1"]
    done = []
    workers = [threading.Thread(target=lambda: done.append(sweeping.forked.run(*command))) for _ in range(2)]
    for each in workers:
        each.start()
    for each in workers:
        each.join()
    assert [each.returncode for each in done] == [0, 0], [each.stderr for each in done]
    study = optuna.load_study(study_name="rates", storage=storage(sweeping))
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 5 and len(cells(sweeping)) == 5
    assert sum(each.stderr.count("] ") for each in done) >= 5 and all("+rates." in each.stderr for each in done)


@pytest.mark.long
def test_a_trial_that_is_worse_ends_at_a_validation(sweeping):
    pruner = ["hydra.sweeper.pruner._target_=optuna.pruners.ThresholdPruner", "+hydra.sweeper.pruner.upper=1.0"]
    longer = ["epochs=1", "validations=3", "hydra.sweeper.n_trials=2", *pruner]  # no trial reaches 1 nat
    done = sweeping.succeed("pretrain", "-m", *OPTUNA, *longer)
    trials = ledger(sweeping, "rates")
    assert set(trials["state"]) == {"pruned"} and not cells(sweeping) and trials["value"].notna().all()
    assert (trials["step"] > 0).all() and "pruned at step" in done.stderr and "pruned at step" in done.stdout
    pruned = [run for run in runs(sweeping) if run.data.tags.get("retable.pruned")]
    assert len(pruned) == 2 and {run.info.status for run in pruned} == {"KILLED"}
    assert not [*(sweeping.folder / "work").glob("pretrain")]


def test_a_job_may_begin_while_it_is_shown_how_far_others_are(tmp_path):
    progress = StudyProgress("sweep", 2, Console(file=io.StringIO()))

    class Steps:
        """The steps of a job; another job starts while they are read."""

        def unlink(self, missing_ok):
            pass

        def exists(self):
            other = SimpleNamespace(name="b", address="b", steps=tmp_path / "b")
            self.thread = threading.Thread(target=progress.begins, args=[other])
            self.thread.start()
            self.thread.join(0.2)  # the thread may have to wait
            return False

    first = SimpleNamespace(name="a", address="a", steps=Steps())
    progress.begins(first)
    progress.refresh()
    first.steps.thread.join()
    progress.ends(first, 1.0, "")
    progress.refresh()


def test_what_fails_in_one_thread_ends_them_all():
    def work(number: int) -> None:
        if number == 1:
            raise UsageError("no")

    with pytest.raises(UsageError):
        in_parallel(work, range(3), 2)


@pytest.mark.parametrize(("override_text", "drawn"), [
    ("lr=interval(1e-3,1e-1)", optuna.distributions.FloatDistribution(1e-3, 1e-1)),
    ("lr=tag(log,interval(1e-3,1e-1))", optuna.distributions.FloatDistribution(1e-3, 1e-1, log=True)),
    ("n=int(interval(1,8))", optuna.distributions.IntDistribution(1, 8)),
    ("n=tag(log,int(interval(1,8)))", optuna.distributions.IntDistribution(1, 8, log=True)),
    ("n=range(1,8,2)", optuna.distributions.IntDistribution(1, 7, step=2)),
    ("p=range(0.0,0.5,0.25)", optuna.distributions.FloatDistribution(0.0, 0.25, step=0.25)),
    ("n=64,128", optuna.distributions.CategoricalDistribution(["64", "128"])),
    ("n=choice(a,b)", optuna.distributions.CategoricalDistribution(["a", "b"])),
])  # fmt: skip
def test_what_hydra_calls_a_sweep_is_a_distribution(override_text, drawn):
    (override,) = OverridesParser.create().parse_overrides([override_text])
    assert distribution(override) == drawn


def test_a_glob_is_no_distribution():
    (override,) = OverridesParser.create().parse_overrides(["recipe=glob(*)"])
    with pytest.raises(UsageError, match="interval"):
        distribution(override)


def test_the_ends_of_a_space():
    space = {
        "lr": optuna.distributions.FloatDistribution(1e-3, 1e-1),
        "model": optuna.distributions.CategoricalDistribution(["a", "b", "c"]),
    }
    assert [*corners(space)] == [
        ["lr=0.001", "model=a"], ["lr=0.1", "model=a"], ["lr=0.001", "model=b"], ["lr=0.001", "model=c"]
    ]  # fmt: skip
    assert rounded("lr=0.0012345") == "lr=0.00123" and rounded("model=a=b") == "model=a=b"


FACTS = {"state": "complete", "step": None, "seconds": 1.0, "cell": "x"}
OF_LSTM = ["corpus=grammar_tiny", "recipe=recurrent/lstm"]


@pytest.fixture
def own(tmp_path, monkeypatch) -> Path:
    """Return recipes of a study whose folder is the working folder."""
    shutil.copytree(ROOT / "conf/recipe/recurrent", tmp_path / "conf/recipe/recurrent")
    (tmp_path / "study.yaml").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "conf/recipe/recurrent"


def swept(args: list[str], *rows: dict, recipe: str | None = "recurrent/lstm", stage: str = "pretrain") -> str:
    """Write a sweep with these trials. Return its folder."""
    folder = Path("multirun", stage, "x")
    rows = [{"trial": number, **FACTS, **row} for number, row in enumerate(rows)]
    leave(SimpleNamespace(folder=folder, stage=stage, overrides=args, recipe=recipe), rows, "validation/loss", True)
    return str(folder)


def test_the_winner_changes_one_recipe(own, capsys):
    args, drawn = ["corpus=grammar_tiny", "recipe=recurrent/lstm", "+sweep=lstm_lr"], ("optimizer.lr", "model.d_model")
    rows = [{"value": value, "state": state} | dict(zip(drawn, each, strict=True)) for value, state, each in (
        (2.0, "complete", (0.1, 64)), (1.5, "complete", (0.0123456, 96)), (1.0, "pruned", (0.2, 128)))]  # fmt: skip
    before = {path: path.read_text() for path in own.glob("*.yaml")}
    place = swept(args, *rows)
    capsys.readouterr()
    adopt(place, dry_run=True)
    assert {path: path.read_text() for path in before} == before
    printed = capsys.readouterr()
    assert (
        "optimizer.lr=0.01235, model.d_model=96" in printed.out and "lstm.yaml would get these settings" in printed.out
    )
    assert printed.err == "the trials ran with corpus=grammar_tiny; without it other values may be best\n"
    adopt(place)
    assert "trial 1, validation/loss 1.5000: optimizer.lr=0.01235, model.d_model=96" in capsys.readouterr().out
    (path,) = [path for path, text in before.items() if path.read_text() != text]
    assert path == own / "lstm.yaml" and path.read_text().splitlines()[:3] == before[path].splitlines()[:3]
    recipe = yaml.safe_load(path.read_text())
    assert (recipe["model"], recipe["optimizer"]) == ({"dropout": 0.0, "d_model": 96}, {"lr": 0.01235})
    for shorter in ("budget=2e5tokens", "+max_steps=3", "epochs=2", ""):
        overrides = [*args, shorter] if shorter else args[1:]
        adopt(swept(overrides, *rows))
        printed = capsys.readouterr()
        assert (f"the trials ran with corpus=grammar_tiny {shorter}; " in printed.err) == bool(shorter)
    assert not printed.err.strip() and "had them already" in printed.out


def test_the_stale_cells_of_the_studies_are_printed(own, capsys):
    systems = [{"of": ["lstm", "kn3"], "seeds": 2}, {"of": "lstm", "as": "fixed", "set": {"optimizer.lr": 0.1}}]
    study = {"corpus": "grammar_tiny", "systems": systems, "benchmarks": {"perplexity": "all"}}
    (own.parents[2] / "study.yaml").write_text(yaml.safe_dump(study), encoding="utf-8")
    place = swept(OF_LSTM, {"value": 2.0, "optimizer.lr": 0.1}, {"value": 1.0, "optimizer.lr": 0.0123})
    capsys.readouterr()
    adopt(place, dry_run=True)
    places = ", ".join(f"pretrain/grammar_tiny/lstm-{seed}" for seed in (1, 2))
    listed = f"stale, and the cells that read them:\n  {own.parents[2].name}: {places}\n"
    assert capsys.readouterr().out.endswith(f"2 cells would become {listed}")
    adopt(place)
    assert f"2 cells are now {listed}" in capsys.readouterr().out
    adopt(place)
    assert "stale" not in capsys.readouterr().out


def test_the_winner_makes_a_recipe_of_its_own(own, capsys):
    """The recipe composes to the swept one with the winner's settings; no existing file is changed."""
    best = {"value": 1.0, "optimizer.lr": 0.0123, "model.d_model": 96}
    place = swept(OF_LSTM, {"value": 2.0, "optimizer.lr": 0.1, "model.d_model": 64}, best)
    before = {path: path.read_bytes() for path in own.parents[1].rglob("*.yaml")}
    adopt(place, dry_run=True, new="lstm_tuned")
    assert not (own / "lstm_tuned.yaml").exists()
    adopt(place, new="lstm_tuned")
    printed = capsys.readouterr().out
    assert "conf/recipe/recurrent/lstm_tuned.yaml has these settings now\n" in printed and "stale" not in printed
    assert {path: path.read_bytes() for path in before} == before
    tuned, plain = (Conf(CONF, own.parents[1]).recipe(name) for name in ("lstm_tuned", "lstm"))
    assert flat(tuned) == {**flat(plain), "optimizer.lr": 0.0123, "model.d_model": 96}
    for name, message in (("lstm", "recipe recurrent/lstm has this name"), ("../x", "letters, digits")):
        with pytest.raises(UsageError, match=message):
            adopt(place, new=name)


def test_the_winner_says_null_and_whole_numbers_as_they_were_drawn(own):
    settings = {"recipe": "recurrent/gru", "clip_norm": "null", "model.d_model": 96}
    args = ["corpus=grammar_tiny", "recipe=recurrent/lstm,recurrent/gru", "clip_norm=null,1.0", "model.d_model=64,96"]
    rows = (
        {"value": 2.0, **settings, "clip_norm": "1.0"}, {"value": 1.5, **settings}, {"value": None, "state": "running"},
    )  # fmt: skip
    adopt(swept(args, *rows, recipe=""))
    recipe = (own / "gru.yaml").read_text()
    assert yaml.safe_load(recipe)["clip_norm"] is None and yaml.safe_load(recipe)["model"]["d_model"] == 96
    assert "d_model: 96\n" in recipe.replace("}", "\n") and "clip_norm: null" in recipe
    rows = [{"value": 2.0 - i, "++max_steps": 100 + i, "+patience": 3} for i in (0, 1)]
    args = ["corpus=grammar_tiny", "recipe=recurrent/lstm", "++max_steps=100,101", "+patience=3,3"]
    adopt(swept(args, *rows))
    known = yaml.safe_load((own / "lstm.yaml").read_text())
    assert (known["max_steps"], known["patience"]) == (101, 3) and not any("+" in key for key in known)
    with pytest.raises(UsageError, match="the swept stage has no recipe"):
        adopt(swept(args, *rows, recipe=None))


def test_sweeps_of_one_name_stand_side_by_side(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for stage, value in (("pretrain", 2.5), ("finetune", 1.5)):
        swept([], {"value": value, "seed": 1}, recipe=None, stage=stage)
    capsys.readouterr()
    show(["multirun/pretrain/x", "multirun/finetune/x"])
    printed = capsys.readouterr().out
    assert "2.5000" in printed and "1.5000" in printed and "work/sweeps/pretrain-x-finetune-x" in printed


HEAD = "trial,state,value,step,seconds,cell,metric,direction"
ADOPT_AND_SHOW = (adopt, lambda place: show([place]))


@pytest.mark.parametrize(("text", "uses", "message"), [
    (b"\xff\xfe", ADOPT_AND_SHOW, "trials.csv cannot be read"),
    (b"", ADOPT_AND_SHOW, "trials.csv cannot be read"),
    (b"trial,state\n0,complete\n", ADOPT_AND_SHOW,
     "trials.csv has no value, step, seconds, cell, metric, direction; run"),
    (f"{HEAD}\n".encode(), ADOPT_AND_SHOW, "trials.csv has no row; run the sweep again"),
    (f"{HEAD}\n0,complete,x,,1,x,loss,minimize\n".encode(), ADOPT_AND_SHOW, "cannot be read"),
    *((f"{HEAD},{column}\n0,{state},1.0,,1,x,validation/loss,minimize,1\n".encode(), (adopt,), message)
      for column, state, message in (
        ("seed", "complete", "seed is not a setting of a recipe"),
        ("tokenizer", "complete", "tokenizer is not a setting of a recipe"),
        ("recipe", "complete", "swept no setting of a recipe"), ("optimizer.lr", "failed", "no trial of"))),
])  # fmt: skip
def test_what_can_not_be_adopted_or_shown_is_told(tmp_path, monkeypatch, text, uses, message):
    monkeypatch.chdir(tmp_path)
    (sweep := tmp_path / "multirun/pretrain/x").mkdir(parents=True)
    write_json(sweep / "sweep.json", {"stage": "pretrain", "overrides": [], "recipe": "recurrent/lstm"})
    (sweep / "trials.csv").write_bytes(text)
    for use in uses:
        with pytest.raises(UsageError, match=message):
            use("multirun/pretrain/x")
        for other in ("", "multirun/pretrain/y"):
            with pytest.raises(UsageError, match=r"write one of multirun/pretrain/x"):
                use(other)


@pytest.mark.parametrize("path", sorted((ROOT / "conf/recipe").rglob("*.yaml")), ids=lambda path: path.stem)
def test_a_recipe_keeps_all_that_is_not_adopted(path):
    text = path.read_text()
    known = yaml.safe_load(text)
    assert changed(text, {}) == text
    after = yaml.safe_load(changed(text, {"optimizer.lr": 0.0123}))
    assert after.pop("optimizer")["lr"] == 0.0123
    known.pop("optimizer", None)
    assert after == known


def test_a_task_learns_by_what_its_recipe_says_under_finetuning():
    places = written_at(
        "finetune", ["recipe=bert/bert", "tokenizer=word_marked"], ["optimizer.lr", "model.d_model", "epochs"]
    )
    assert places == {"optimizer.lr": "finetuning.lr", "model.d_model": "model.d_model", "epochs": "finetuning.epochs"}
    assert written_at("pretrain", ["recipe=recurrent/lstm"], ["optimizer.lr"]) == {"optimizer.lr": "optimizer.lr"}
