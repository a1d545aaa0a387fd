"""Test a small study: what runs at first, and after edits that change no number or some numbers.

Also what two studies share, and a user's study.
"""

import copy
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pipelines.config.project import CONF
from pipelines.executors.client import python_of
from retable.core.digests import write_digests

pytestmark = pytest.mark.long

ROOT = CONF.parent
STUDY = {"corpus": "grammar_tiny", "systems": [{"of": ["kn3", "kn5"]}],
         "benchmarks": {"perplexity": "all", "phenomena": "all"}}  # fmt: skip
HISTORY = "studies/history"
CELLS = [f"evaluate@{system}-1" for system in ("kn3", "kn5")]
SMALLER = ("conf/corpus/grammar_tiny.yaml", "train: 50000, validation: 5000, test: 20000",
           "train: 3000, validation: 600, test: 900")  # fmt: skip


class Repro:
    """A separate project; its Python is that of executors/local.py."""

    def __init__(self, folder: Path, forks: str):
        self.folder, self.python = folder, Path(python_of(forks))
        path = os.pathsep.join([str(self.python.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
        self.environment = os.environ | {"PYTHONPATH": f"{folder / 'src'}{os.pathsep}{folder}", "PATH": path}

    def __call__(self, *command: str) -> str:
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ran(self) -> list[str]:
        """Return the stages that a `dvc repro` of the evaluations runs."""
        return re.findall(r"Running stage '([\w@-]+)'", self("dvc", "repro", *CELLS))

    def make(self, *arguments: str) -> subprocess.CompletedProcess:
        """Run the study as `make repro` does."""
        return subprocess.run(
            [str(self.python), "-m", "pipelines.cli.main", "repro", *arguments],
            cwd=self.folder, env=self.environment, capture_output=True, text=True,
        )  # fmt: skip

    def made(self, *arguments: str) -> list[str]:
        """Return the stages that `make repro` ran, in their order."""
        done = self.make(*arguments)
        assert done.returncode == 0, done.stderr
        lines = re.findall(r"^\[ ?\d+/\d+\] +[\d.]+ s  (.*)$", done.stderr, re.MULTILINE)
        return [line for line in lines if not line.endswith("no change")]

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.folder / file
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")

    def read(self, file: str) -> str:
        return (self.folder / file).read_text(encoding="utf-8")

    def commit(self) -> None:
        self("git", "add", "-A")
        self("git", "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "--quiet", "-m", "now")


def small_project(made: Repro) -> Repro:
    """Make the folder a checkout whose only study is STUDY."""
    for name in ("conf", "pipelines", "src/retable"):
        shutil.copytree(ROOT / name, made.folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in (".dvcignore", ".gitignore", ".dvc/config", ".dvc/.gitignore", "pyproject.toml"):
        (made.folder / name).parent.mkdir(exist_ok=True)
        shutil.copyfile(ROOT / name, made.folder / name)
    add_study(made, "history", STUDY)
    made.edit(*SMALLER)
    made("git", "init", "--quiet")
    made(str(made.python), "-m", "pipelines.cli.main", "graph")
    made.commit()
    return made


def add_study(made: Repro, name: str, said: dict) -> Path:
    (file := made.folder / "studies" / name / "study.yaml").parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(said), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def repro(tmp_path_factory, forks):
    return small_project(Repro(tmp_path_factory.mktemp("repro"), forks))


def test_only_what_may_change_a_number_runs_again(repro):
    systems = [f"{stage} {name}-1" for stage in ("pretrain", "evaluate") for name in ("kn3", "kn5")]
    first = ["plan", "prepare grammar_tiny", "tokenize word", *systems, "report"]
    assert sorted(repro.made()) == sorted(first)
    tables = {path.stem for path in (repro.folder / HISTORY / "results").glob("*.md")}
    assert {"perplexity", "phenomena-grammar_tiny"} <= tables

    written = repro.read("dvc.yaml")
    (repro.folder / "src/retable/nn/_fused.so").write_bytes(b"compiled")  # compiled on this machine; not in every clone
    (repro.folder / "pipelines/__pycache__").mkdir(exist_ok=True)
    (repro.folder / "pipelines/__pycache__/anything.pyc").write_bytes(b"compiled")
    (repro.folder / "dvc.yaml").write_bytes(b"stages: {}\n")  # as after git checkout
    assert repro.make().stdout.endswith(f"\n\nNothing to do. The report: {HISTORY}/results/report.html\n")
    assert repro.read("dvc.yaml") == written
    assert repro("dvc", "status").strip() == "Data and pipelines are up to date."

    repro.edit("src/retable/models/ngram.py", "class KneserNey(", "# edited\nclass KneserNey(")
    repro.edit("conf/recipe/counted/kn3.yaml", "stage: pretrain", "stage: pretrain  # edited")
    (repro.folder / "outputs/pretrain/grammar_tiny/kn3-1/metrics.json").unlink()
    repro.edit("conf/recipe/counted/kn5.yaml", "order: 5", "order: 4")
    made = ["evaluate kn5-1", "plan", "pretrain kn3-1  from the cache", "pretrain kn5-1", "report"]
    assert sorted(repro.made()) == made


def test_what_a_reader_of_the_page_does(repro, browser):
    """The reader opens a number's provenance, copies the command and runs it: the number is the same."""
    page = browser.new_page()
    page.goto((repro.folder / HISTORY / "results/report.html").as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    row = page.locator("#table-perplexity tr", has_text="kn3").first
    number = row.locator("a[data-cells]").first
    shown = float(number.inner_text())
    number.click()
    command = page.get_by_role("dialog").locator(".command").first.inner_text()
    assert command.startswith("python -m pipelines.evaluate corpus=grammar_tiny ")
    metrics = repro.folder / "outputs/evaluate/grammar_tiny/kn3-1/perplexity/metrics.json"
    written = metrics.read_bytes()
    metrics.unlink()
    repro(*shlex.split(command))
    assert metrics.read_bytes() == written
    assert json.loads(written)["test/perplexity_word"] == pytest.approx(shown, abs=0.005)


@pytest.mark.long
def test_a_try_stands_in_a_report_of_its_own(repro):
    stages, name = (str(repro.python), "-m"), "grammar_tiny/kn3-1+model.order-2"
    committed = repro.read(f"{HISTORY}/results/report.md")
    repro(*stages, "pipelines.pretrain", "corpus=grammar_tiny", "recipe=counted/kn3", "model.order=2")
    repro(*stages, "pipelines.evaluate", "corpus=grammar_tiny", f"cell={name}")
    repro(*stages, "pipelines.report", f"tries=[evaluate/{name}]")
    assert "kn3+model.order-2" in repro.read("work/report/perplexity.md")
    assert repro.read(f"{HISTORY}/results/report.md") == committed
    assert repro.ran() == []


@pytest.mark.long
def test_a_failed_stage_is_named_and_what_does_not_wait_for_it_runs(repro):
    repro.edit("conf/recipe/counted/kn3.yaml", "order: 3", "order: 0")
    kn5 = repro.folder / "conf/recipe/counted/kn5.yaml"
    kn5.write_text(re.sub(r"order: \d", "order: 6", kn5.read_text(encoding="utf-8")), encoding="utf-8")
    done = repro.make("history", "--jobs", "1")
    repro.edit("conf/recipe/counted/kn3.yaml", "order: 0", "order: 3")
    assert done.returncode == 1 and done.stdout.endswith("stages run in " + done.stdout.rpartition(" in ")[2])
    assert "pretrain kn3-1  failed\n" in done.stderr
    assert "evaluate kn3-1" not in done.stderr
    assert "evaluate kn5-1\n" in done.stderr and "report" not in done.stderr
    assert re.search(r"^failed pretrain kn3-1: error: .*order", done.stderr, re.MULTILINE)
    assert "run only this stage: dvc repro --single-item pretrain@kn3-1\n" in done.stderr
    assert repro.make().returncode == 0


@pytest.mark.long
def test_a_report_that_fails_leaves_the_old_one(repro):
    repro.make()
    results = repro.folder / HISTORY / "results"
    before = {path: path.read_bytes() for path in results.rglob("*") if path.is_file()}
    assert len(before) > 10
    unmeasured = {"benchmarks": {"perplexity": "kn5"}, "lineage": {"kn3": 1995, "kn5": 1998}}
    add_study(repro, "history", STUDY | unmeasured)
    done = repro.make()
    assert done.returncode == 1
    assert "failed report: error: lineage: kn3 has no test perplexity in this study; add it" in done.stderr
    assert {path: path.read_bytes() for path in results.rglob("*") if path.is_file()} == before
    add_study(repro, "history", STUDY)
    assert repro.make().returncode == 0
    assert not [path for path in (repro.folder / "work").iterdir() if path.name.startswith("report.")]


def test_there_is_a_line_for_a_mistake(repro):
    done = repro.make("histories")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "write history" in done.stderr
    assert repro.make("history", "--jobs", "0").stderr == "error: jobs=0 must be at least 1; write 1 or more\n"


@pytest.mark.long
def test_what_is_made_again_from_nothing_is_as_it_was_committed(repro):
    """The lock, tables and records have the same bytes. The runs, which DVC does not compare, are next to them."""
    repro.make("history", "--jobs", "2")
    made_here = {"runs.csv", "report.html"}

    def committed() -> dict[str, bytes]:
        files = [repro.folder / "dvc.lock", *(repro.folder / HISTORY).rglob("*.*")]
        return {str(path): path.read_bytes() for path in files if path.is_file() and path.name not in made_here}

    before, runs = committed(), repro.folder / HISTORY / "results/runs.csv"
    rows = runs.read_text(encoding="utf-8").splitlines()
    for folder in ("outputs", ".dvc/cache", "mlflow.db", "mlartifacts", "work/made"):
        repro("rm", "-r", folder)
    done = repro.make("history", "--jobs", "1")
    assert committed() == before and len(before) > 20
    # the printed log: one line per stage; then the first table, and the time
    assert len(done.stderr.splitlines()) == 8
    for line in done.stderr.splitlines():
        assert re.fullmatch(r"\[\d/8\] +[\d.]+ s  \w+( [\w-]+)?", line)
    assert done.stdout.startswith("### Perplexity\n") and done.stdout.count("###") == 1
    assert re.fullmatch(r"8 of 8 stages run in ([\d.]+ s|\d+ min \d+ s)\. .*report\.html", done.stdout.splitlines()[-1])
    assert runs.exists()  # DVC keeps what it does not compare
    repro("rm", "-r", f"{HISTORY}/results")
    assert repro.made() == ["report"]
    assert committed() == before
    again = runs.read_text(encoding="utf-8").splitlines()
    assert again[0] == rows[0] and len(again) == len(rows) == 7 and not set(again[1:]) & set(rows[1:])
    (page := runs.with_name("report.html")).unlink()
    assert repro.made() == ["report"]
    assert committed() == before and page.exists()


@pytest.mark.long
def test_a_study_restores_what_another_has_made(repro):
    repro.make()
    said = STUDY | {"systems": [{"of": ["kn3", "unigram"]}], "benchmarks": {"perplexity": "all"}}
    add_study(repro, "other", said)
    assert sorted(repro.made("other")) == [
        "evaluate kn3-1", "evaluate unigram-1", "plan", "prepare grammar_tiny  from the cache",
        "pretrain kn3-1  from the cache", "pretrain unigram-1", "report", "tokenize word  from the cache",
    ]  # fmt: skip
    study, cell = repro.folder / "studies/other", "pretrain/grammar_tiny/kn3-1"
    made, origin = (
        json.loads(repro.read(f"{folder}/records/{cell}.json"))["made"] for folder in ("studies/other", HISTORY)
    )
    assert all(made[name] == origin[name] is not None for name in ("commit", "machine", "code", "requirements"))

    measured = study / "outputs/evaluate/grammar_tiny/kn3-1"
    said["benchmarks"]["positions"] = "kn3"
    add_study(repro, "other", said)
    scores = (measured / "perplexity/metrics.json").read_bytes()
    every = (repro.folder / "work/measured").glob("*/metrics.json")
    (kept,) = (path.parent for path in every if path.read_bytes() == scores)
    (kept / "note.txt").write_text("Not measured again.", encoding="utf-8")
    (kept / "digests.json").unlink()
    write_digests(kept)
    assert repro.made("other") == ["plan", "evaluate kn3-1", "report"]
    assert (measured / "positions/metrics.json").exists() and (measured / "perplexity/note.txt").exists()
    assert repro.made() == repro.made("studies/other") == []
    add_study(repro, "third", said)
    assert "evaluate kn3-1  from the cache" in repro.made("third")
    shutil.rmtree(study)
    shutil.rmtree(study.with_name("third"))


@pytest.mark.long
def test_a_study_of_ones_own(repro, tmp_path):
    study = tmp_path / "mine"
    own = {
        "study.yaml": yaml.safe_dump({"corpus": "letters", "systems": [{"of": ["kn5", "kn2"]}],
                                      "benchmarks": {"perplexity": "all"}}),
        "conf/corpus/letters.yaml": (ROOT / "conf/corpus/ptb.yaml").read_text(encoding="utf-8")
        .replace("${oc.env:RETABLE_DATA,data}/ptb/ptb.", "texts/").replace("valid.", "validation."),
        "conf/recipe/kn2.yaml": (ROOT / "conf/recipe/counted/kn3.yaml").read_text(encoding="utf-8")
        .replace("order: 3", "order: 2"),
        **{f"texts/{split}.txt": "the cat sees a bird\na bird sees it\n" for split in ("train", "validation", "test")},
    }  # fmt: skip
    for name, text in own.items():
        (study / name).parent.mkdir(parents=True, exist_ok=True)
        (study / name).write_text(text, encoding="utf-8")
    assert "pretrain kn2-1" in repro.made(str(study))
    inside = copy.copy(repro)
    inside.folder = study
    assert inside("dvc", "status").strip() == "Data and pipelines are up to date."
    assert inside.make().stdout.endswith("\n\nNothing to do. The report: results/report.html\n")
    record = json.loads(inside.read("records/pretrain/letters/kn2-1.json"))
    assert record["config"]["model"]["order"] == 2
    assert (study / "mlflow.db").exists() and "| kn2 " in inside.read("results/perplexity.md")
    inside(str(repro.python), "-m", "pipelines.pretrain", "corpus=letters", "recipe=kn2", "model.order=1")
    assert (study / "outputs/pretrain/letters/kn2-1+model.order-1/metrics.json").exists()
    inside.edit("texts/test.txt", "sees", "finds")
    made = ("evaluate kn2-1", "evaluate kn5-1", "pretrain kn2-1", "pretrain kn5-1", "report")
    assert sorted(inside.made()) == sorted(["prepare letters", "tokenize word", *made])


@pytest.fixture(scope="module")
def committed(repro):
    """Return the project in git, with its cells as in the lock."""
    repro.make()
    repro.commit()


@pytest.mark.long
@pytest.mark.usefixtures("committed")
def test_an_experiment_runs_what_its_setting_changes(repro):
    """There is no warning about other cells; a file of the user is not staged, and only params.yaml is changed."""
    (mine := repro.folder / "notes.txt").write_text("mine")
    command = ["dvc", "exp", "run", "--name", "longer", "-S", "+pretrain.kn5-1.model.order=7"]
    done = subprocess.run(command, cwd=repro.folder, env=repro.environment, capture_output=True, text=True)
    said = done.stdout
    assert done.returncode == 0 and "WARNING" not in said + done.stderr, done.stderr
    assert not repro("git", "diff", "--cached", "--name-only")
    changed = {line for line in repro("git", "status", "--porcelain").splitlines() if line.endswith((".yaml", ".txt"))}
    assert changed == {" M params.yaml", "?? notes.txt"}
    mine.unlink()
    assert re.findall(r"Running stage '([\w@-]+)'", said) == ["plan", "pretrain@kn5-1", "evaluate@kn5-1", "report"]
    assert json.loads(repro.read("outputs/pretrain/grammar_tiny/kn5-1/run.json"))["system"] == "kn5"
    assert yaml.safe_load(repro.read("outputs/pretrain/grammar_tiny/kn5-1/config.yaml"))["model"]["order"] == 7
    shown = json.loads(repro("dvc", "exp", "diff", "--json", "HEAD", "longer"))
    assert shown["params"] == {"params.yaml": {"pretrain.kn5-1.model.order": {"old": None, "new": 7}}}
    (scores,) = shown["metrics"].values()
    assert "kn5.test/perplexity_word" in scores and not any(name.startswith("kn3") for name in scores)
    repro("git", "reset", "--quiet", "--hard")
    repro("dvc", "checkout")
    assert repro.made() == []


@pytest.mark.usefixtures("committed")
class TestWhy:
    """Test the answers of `retable why`."""

    KN3, RECIPE = "pretrain/grammar_tiny/kn3-1", "conf/recipe/counted/kn3.yaml"

    @pytest.fixture
    def why(self, repro):
        def why(name: str = "grammar_tiny/kn3-1") -> list[str]:
            first, *reasons = repro(str(repro.python), "-m", "pipelines.cli.main", "why", name).splitlines()
            ends = " would run:" if reasons else " is up to date"
            assert first.endswith(ends), first
            return [line.removeprefix("  ") for line in reasons]

        return why

    @pytest.fixture
    def edited(self, repro):
        """Change a file inside the block."""
        before = {}

        def edit(file: str, old: str, new: str) -> None:
            before.setdefault(path := repro.folder / file, path.read_bytes())
            repro.edit(file, old, new)

        yield edit
        for path, content in before.items():
            path.write_bytes(content)

    def test_there_is_nothing_to_do(self, why):
        assert why(f"outputs/{self.KN3}/") == why("kn3-1") == []

    def test_a_recipe_sets_itself_what_was_edited_in_another(self, edited, repro):
        edited(self.RECIPE, "order: 3", "order: 2")
        assert repro(str(repro.python), "-m", "pipelines.cli.main", "why", "kn5-1").splitlines() == [
            "pretrain/grammar_tiny/kn5-1 is up to date",
            "  recipe counted/kn5 inherits from counted/kn3, but overrides model.order",
        ]

    def test_code_and_a_setting_have_changed(self, why, edited, repro):
        edited(
            "src/retable/models/ngram.py", "class KneserNey(Interpolated):", "class KneserNey(Interpolated):\n    x = 1"
        )
        edited("src/retable/models/gpt.py", '"""', '"""Edited. ')
        changed = "code: retable.models.ngram.KneserNey, since HEAD"
        assert why() == [changed]
        of_study = repro(str(repro.python), "-m", "pipelines.cli.main", "why").splitlines()
        assert of_study[0] == "study history: 4 of 6 cells would run again, and cells that read them"
        assert of_study[1] == f"  {self.KN3}: {changed}"
        edited(self.RECIPE, "order: 3", "order: 2")
        waits = f"it reads {self.KN3}, which would run: `retable why {self.KN3}`"
        assert f"{self.KN3} model.order: 3 -> 2" in (reasons := why("evaluate@kn3-1")) and reasons[-1] == waits

    @pytest.mark.long
    def test_a_setting_has_changed_before_and_after_plans_are_made_anew(self, why, edited, repro):
        edited(self.RECIPE, "order: 3", "order: 2")
        assert why() == ["model.order: 3 -> 2"]
        repro("dvc", "repro", "plan")
        assert why() == ["model.order: 3 -> 2"]
        cache = repro.folder / ".dvc/cache"
        cache.rename(cache.with_name("away"))
        first, *_ = why()
        shutil.rmtree(cache, ignore_errors=True)
        cache.with_name("away").rename(cache)
        assert first == "its settings or code have changed; its former plan is not here"

    def test_inputs_or_the_result_have_changed(self, why, edited, repro):
        path = "outputs/tokenize/grammar_tiny/word"
        lock = yaml.safe_load(text := repro.read("dvc.lock"))
        (read,) = (dep for dep in lock["stages"]["pretrain@kn3-1"]["deps"] if dep["path"] == path)
        read["md5"] = "f" * 32
        edited("dvc.lock", text, yaml.safe_dump(lock))
        assert why() == [f"{path} has changed"]
        (repro.folder / "dvc.lock").write_text(text, encoding="utf-8")
        edited(f"outputs/{self.KN3}/metrics.json", "{", "{ ")
        assert why() == [f"outputs/{self.KN3} has changed; its former content is in DVC's cache"]

    def test_a_cell_is_new_or_there_is_none(self, why, edited, repro):
        edited(f"{HISTORY}/study.yaml", "- kn5", "- kn5\n  - unigram")
        assert why("grammar_tiny/unigram-1") == ["it has not been made in this project"]
        edited(f"{HISTORY}/study.yaml", "- kn5\n  - unigram", "- kn5")
        command = [str(repro.python), "-m", "pipelines.cli.main", "why", "kn33-1"]
        done = subprocess.run(command, cwd=repro.folder, env=repro.environment, capture_output=True, text=True)
        assert done.returncode == 2
        assert done.stderr == "error: kn33-1 is not a cell of study history; write kn3-1\n"
