"""`dvc repro` on a small study: what runs at first, after an edit that changes no number, and after one that does."""

import csv
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

from pipelines.entry import CONF
from pipelines.forks import write_python
from pipelines.prove import chosen, lend_kernels

ROOT = CONF.parent
STUDY = {"corpus": "grammar_tiny", "systems": [{"of": ["kn3", "kn5"]}],
         "benchmarks": {"perplexity": "all", "phenomena": "all"}}  # fmt: skip
GRAPH = "graph/corpus/grammar_tiny/dvc.yaml"
CELLS = [f"{GRAPH}:evaluate-{system}-1-perplexity-phenomena" for system in ("kn3", "kn5")]


class Repro:
    """A project of its own, whose Python is that of forks.py."""

    def __init__(self, folder: Path, tools: Path, forks: str):
        self.folder, self.python = folder, tools / "python"
        write_python(self.python, forks)
        path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
        self.environment = os.environ | {"PYTHONPATH": f"{folder / 'src'}{os.pathsep}{folder}", "PATH": path}

    def __call__(self, *command: str) -> str:
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ran(self) -> list[str]:
        """The stages that a `dvc repro` of the evaluations runs."""
        return re.findall(r"Running stage '[^:']+:([\w-]+)'", self("dvc", "repro", *CELLS))

    def make(self, *arguments: str) -> subprocess.CompletedProcess:
        """As `make repro` would."""
        return subprocess.run(
            [str(self.python), "-m", "pipelines.command", "repro", *arguments],
            cwd=self.folder, env=self.environment, capture_output=True, text=True,
        )  # fmt: skip

    def made(self, *arguments: str) -> list[str]:
        """The stages in which `make repro` found something to do, in their order."""
        done = self.make(*arguments)
        assert done.returncode == 0, done.stderr
        lines = re.findall(r"^\[ ?\d+/\d+\] +[\d.]+ s  (.*)$", done.stderr, re.MULTILINE)
        return [line for line in lines if not line.endswith("no change")]

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.folder / file
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")


def small_project(made: Repro) -> Repro:
    """Make a project of its folder, whose only study is STUDY."""
    for name in ("conf", "pipelines", "src/retable"):
        shutil.copytree(ROOT / name, made.folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(ROOT / ".dvcignore", made.folder / ".dvcignore")
    for path in (made.folder / "conf/study").glob("*.yaml"):
        path.unlink()
    (made.folder / "conf/study/lineage.yaml").write_text(yaml.safe_dump(STUDY), encoding="utf-8")
    made.edit("conf/corpus/grammar_tiny.yaml", "train: 50000, validation: 5000, test: 20000",
              "train: 3000, validation: 600, test: 900")  # fmt: skip
    made("dvc", "init", "--quiet", "--no-scm")
    made(str(made.python), "-m", "pipelines.command", "graph")
    return made


@pytest.fixture(scope="module")
def repro(tmp_path_factory, forks):
    return small_project(Repro(tmp_path_factory.mktemp("repro"), tmp_path_factory.mktemp("tools"), forks))


def test_only_what_may_change_a_number_runs_again(repro):
    first = ["plan", "prepare", "encode-word", "pretrain-kn3-1", "evaluate-kn3-1-perplexity-phenomena",
             "pretrain-kn5-1", "evaluate-kn5-1-perplexity-phenomena"]  # fmt: skip
    assert sorted(repro.ran()) == sorted(first)
    (repro.folder / "src/retable/nn/_fused.so").write_bytes(b"compiled")  # of this machine, and not in every clone
    assert repro.ran() == []
    assert repro.made() == ["plan report/lineage", "report lineage"]
    tables = {path.stem for path in (repro.folder / "results/lineage").glob("*.md")}
    assert {"perplexity", "phenomena-grammar_tiny"} <= tables
    assert repro.make().stdout.endswith("\n\nNothing to do. The report: results/lineage/report.html\n")
    written = (repro.folder / GRAPH).read_bytes()
    for lost in (lambda path: path.unlink(), lambda path: path.write_bytes(b"stages: {}\n")):  # as by git checkout
        lost(repro.folder / GRAPH)
        assert repro.made() == [] and (repro.folder / GRAPH).read_bytes() == written

    repro.edit("src/retable/models/ngram.py", "class KneserNey(", "# edited\nclass KneserNey(")
    repro.edit("conf/recipe/counted/kn3.yaml", "stage: pretrain", "stage: pretrain  # edited")
    assert sorted(repro.made()) == ["plan grammar_tiny", "plan report/lineage"]
    assert repro.ran() == []

    (repro.folder / "outputs/evaluate/grammar_tiny/kn3-1-perplexity-phenomena/metrics.json").unlink()
    assert repro.made() == ["evaluate grammar_tiny/kn3-1-perplexity-phenomena  from the cache"]

    repro.edit("conf/recipe/counted/kn5.yaml", "order: 5", "order: 4")
    places = ["pretrain grammar_tiny/kn5-1", "evaluate grammar_tiny/kn5-1-perplexity-phenomena", "report lineage"]
    assert [name for name in repro.made() if not name.startswith("plan")] == places


def test_what_a_reader_of_the_page_does(repro, browser):
    """Opens a number's provenance, copies its command and runs it: the number is the same."""
    page = browser.new_page()
    page.goto((repro.folder / "results/lineage/report.html").as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    row = page.locator("#table-perplexity tr", has_text="kn3").first
    number = row.locator("a[data-cells]").first
    shown = float(number.inner_text())
    number.click()
    command = page.get_by_role("dialog").locator(".command").first.inner_text()
    assert command.startswith("python -m pipelines.evaluate corpus=grammar_tiny ")
    metrics = repro.folder / "outputs/evaluate/grammar_tiny/kn3-1-perplexity-phenomena/perplexity/metrics.json"
    written = metrics.read_bytes()
    metrics.unlink()
    repro(*shlex.split(command))
    assert metrics.read_bytes() == written
    assert json.loads(written)["test/perplexity_word"] == pytest.approx(shown, abs=0.005)


def test_a_try_stands_in_a_report_of_its_own(repro):
    stages, name = (str(repro.python), "-m"), "grammar_tiny/kn3-1+model.order-2"
    committed = (repro.folder / "results/lineage/report.md").read_bytes()
    repro(*stages, "pipelines.pretrain", "corpus=grammar_tiny", "recipe=counted/kn3", "model.order=2")
    repro(*stages, "pipelines.evaluate", "corpus=grammar_tiny", f"cell={name}")
    repro(*stages, "pipelines.report", f"tries=[evaluate/{name}-perplexity]")
    assert "kn3+model.order-2" in (repro.folder / "work/report/lineage/perplexity.md").read_text(encoding="utf-8")
    assert (repro.folder / "results/lineage/report.md").read_bytes() == committed
    assert repro.ran() == []


@pytest.mark.long
def test_a_failed_stage_is_named_and_what_does_not_wait_for_it_runs(repro):
    repro.edit("conf/recipe/counted/kn3.yaml", "order: 3", "order: 0")
    kn5 = repro.folder / "conf/recipe/counted/kn5.yaml"
    kn5.write_text(re.sub(r"order: \d", "order: 6", kn5.read_text(encoding="utf-8")), encoding="utf-8")
    done = repro.make("lineage", "--jobs", "1")
    repro.edit("conf/recipe/counted/kn3.yaml", "order: 0", "order: 3")
    assert done.returncode == 1 and done.stdout.endswith("stages run in " + done.stdout.rpartition(" in ")[2])
    assert "pretrain grammar_tiny/kn3-1  failed\n" in done.stderr
    assert "evaluate grammar_tiny/kn3-1" not in done.stderr
    assert "evaluate grammar_tiny/kn5-1-perplexity-phenomena\n" in done.stderr and "report lineage" not in done.stderr
    assert re.search(r"^failed pretrain grammar_tiny/kn3-1: error: .*order", done.stderr, re.MULTILINE)
    assert f"alone: dvc repro --single-item {GRAPH}:pretrain-kn3-1\n" in done.stderr
    assert repro.make().returncode == 0


@pytest.mark.long
def test_a_report_that_fails_leaves_the_old_one(repro):
    repro.make()
    study, results = repro.folder / "conf/study/lineage.yaml", repro.folder / "results/lineage"
    said = study.read_text(encoding="utf-8")
    before = {path: path.read_bytes() for path in results.rglob("*") if path.is_file()}
    assert len(before) > 10
    unmeasured = {"benchmarks": {"perplexity": "kn5"}, "lineage": {"kn3": 1995, "kn5": 1998}}
    study.write_text(yaml.safe_dump(STUDY | unmeasured), encoding="utf-8")
    done = repro.make()
    assert done.returncode == 1
    assert "failed report lineage: error: lineage: kn3 has no test perplexity in this study; add it" in done.stderr
    assert {path: path.read_bytes() for path in results.rglob("*") if path.is_file()} == before
    study.write_text(said, encoding="utf-8")
    assert repro.make().returncode == 0
    assert not [path for path in (repro.folder / "work").iterdir() if path.name.startswith("report-")]


def test_there_is_a_line_for_a_mistake(repro):
    done = repro.make("lineages")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and "write lineage" in done.stderr
    assert repro.make("lineage", "--jobs", "0").stderr == "error: jobs=0 runs nothing; write 1 or more\n"


@pytest.mark.long
def test_what_is_made_again_from_nothing_is_as_it_was_committed(repro):
    """The locks and the tables are the same bytes; beside them, outside of what DVC compares, stand the runs."""
    repro.make("lineage", "--jobs", "2")
    made_here = {"runs.csv", "report.html"}

    def committed() -> dict[str, bytes]:
        files = [*repro.folder.rglob("dvc.lock"), *(repro.folder / "results").rglob("*")]
        return {str(path): path.read_bytes() for path in files if path.is_file() and path.name not in made_here}

    before, runs = committed(), repro.folder / "results/lineage/runs.csv"
    rows = runs.read_text(encoding="utf-8").splitlines()
    for folder in ("outputs", ".dvc/cache", "mlflow.db", "mlartifacts"):
        repro("rm", "-r", folder)
    done = repro.make("lineage", "--jobs", "1")
    assert committed() == before and len(before) > 10
    # what a reader of the log sees: a line a stage; then the first table, and how long it took
    assert len(done.stderr.splitlines()) == 9
    for line in done.stderr.splitlines():
        assert re.fullmatch(r"\[\d/9\] +[\d.]+ s  \w+ [\w/-]+", line)
    assert done.stdout.startswith("### Perplexity\n") and done.stdout.count("###") == 1
    assert re.fullmatch(r"9 of 9 stages run in ([\d.]+ s|\d+ min \d+ s)\. .*report\.html", done.stdout.splitlines()[-1])
    assert runs.exists()  # DVC has left what it does not compare
    repro("rm", "-r", "results/lineage")
    assert repro.made() == ["report lineage"]
    assert committed() == before
    again = runs.read_text(encoding="utf-8").splitlines()
    assert again[0] == rows[0] and len(again) == len(rows) == 7 and not set(again[1:]) & set(rows[1:])
    (page := runs.with_name("report.html")).unlink()
    assert repro.made() == ["report lineage"]
    assert committed() == before and page.exists()


@pytest.fixture(scope="module")
def committed(repro):
    """The project as a git repository, whose cells are as the locks have them."""
    repro.make()
    (repro.folder / ".gitignore").write_text("outputs/\nwork/\nmlflow.db*\nmlartifacts/\n.dvc/\n", encoding="utf-8")
    for command in (("init", "--quiet"), ("add", "-A"), ("commit", "--quiet", "-m", "before")):
        repro("git", "-c", "user.name=a", "-c", "user.email=a@b.c", *command)


@pytest.mark.long
@pytest.mark.usefixtures("committed")
def test_what_is_proved_the_same_is_renewed(repro):
    """A line that changes no number: one cell of each kind runs under both commits, and nothing is made again."""
    repro.edit(
        "src/retable/models/ngram.py",
        "class KneserNey(Interpolated):",
        "class KneserNey(Interpolated):\n    edited = 1\n",
    )
    repro("git", "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "--quiet", "-am", "after")
    lock = repro.folder / GRAPH.replace(".yaml", ".lock")
    before = lock.read_text(encoding="utf-8").splitlines()
    said = repro(str(repro.python), "-m", "pipelines.prove", "HEAD~1")
    assert said.splitlines() == [
        "same   pretrain/grammar_tiny/kn3-1, for 2: pretrain/grammar_tiny/kn3-1 pretrain/grammar_tiny/kn5-1",
        "same   evaluate/grammar_tiny/kn3-1-perplexity-phenomena, for 2: "
        "evaluate/grammar_tiny/kn3-1-perplexity-phenomena evaluate/grammar_tiny/kn5-1-perplexity-phenomena",
    ]
    after = lock.read_text(encoding="utf-8").splitlines()
    changed = [new for old, new in zip(before, after, strict=True) if old != new]  # broken where DVC breaks its lines
    assert len(changed) >= 4 and all(line.strip().startswith(("md5: ", "size: ")) for line in changed)
    assert repro.ran() == ["plan"]
    with (repro.folder / "results/renewals.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [(row["stage"], row["renewed"]) for row in rows] == [("pretrain", "2"), ("evaluate", "2")]
    assert all(row["old_code"] != row["new_code"] and len(row["digest"]) == 64 for row in rows)


@pytest.mark.long
@pytest.mark.usefixtures("committed")
def test_what_is_told_otherwise_and_is_the_same_needs_no_proof(repro):
    repro.made()
    repro("git", "add", "-A")
    repro("git", "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "--quiet", "-m", "made")
    repro.edit("src/retable/plan/fingerprint.py", '"\\n".join(sorted(linked))', '"; ".join(sorted(linked))')
    repro("git", "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "--quiet", "-am", "told otherwise")
    said = repro(str(repro.python), "-m", "pipelines.prove", "HEAD~1")
    kinds = {line.split()[1].split("/")[0] for line in said.splitlines()}
    assert kinds == {"prepare", "encode", "pretrain", "evaluate"}
    assert all(line.startswith("alike  ") for line in said.splitlines())
    assert repro.ran() == ["plan"]


def test_cells_are_proved_apart_whose_settings_choose_another_path():
    """A dropout that there is, another norm; not a width, a text or a seed."""
    values = {
        "model.dropout": 0.0,
        "model.norm": "pre",
        "model.d_model": 64,
        "embedding.path": "data/ptb",
        "corpus.unit": "line",
        "seed": 1,
    }
    alike = values | {"model.d_model": 128, "embedding.path": "data/mine", "corpus.unit": "document", "seed": 2}
    assert chosen(values) == chosen(alike) and repr(chosen(values)) == repr(chosen(alike | {"model.dropout": 0}))
    for change in ({"model.dropout": 0.1}, {"model.norm": "post"}, {"model.d_model": 1}, {"optimizer.momentum": None}):
        assert chosen(values | change) != chosen(values)
    assert (
        chosen({"model.filters": [[1, 2], [3, 4]]})
        == chosen({"model.filters": [[2, 2]] * 3})
        != chosen({"model.filters": [[1, 2]]})
    )


@pytest.mark.parametrize(("source", "lent"), [("same", True), ("other", False), (None, False)])
def test_what_is_compiled_serves_the_old_tree_if_its_source_is_the_same(source, lent, tmp_path):
    here, there = (tmp_path / side / "src/retable/nn" for side in ("here", "there"))
    for folder, text in ((here, "same"), (there, source)):
        folder.mkdir(parents=True)
        if text is not None:
            (folder / "fused.c").write_text(text)
    (here / "_fused.cpython-311-x86_64-linux-gnu.so").write_text("compiled")
    lend_kernels(tmp_path / "here", tmp_path / "there")
    assert (there / "_fused.cpython-311-x86_64-linux-gnu.so").exists() is lent


@pytest.mark.usefixtures("committed")
class TestWhy:
    """What `retable why` answers."""

    KN3, RECIPE = "pretrain/grammar_tiny/kn3-1", "conf/recipe/counted/kn3.yaml"

    @pytest.fixture
    def why(self, repro):
        def why(name: str = "grammar_tiny/kn3-1") -> list[str]:
            first, *reasons = repro(str(repro.python), "-m", "pipelines.command", "why", name).splitlines()
            ends = " would run:" if reasons else " is as DVC's lock has it: nothing to do"
            assert first.endswith(ends), first
            return [line.removeprefix("  ") for line in reasons]

        return why

    @pytest.fixture
    def edited(self, repro):
        """Edit a file for the time of a test."""
        before = {}

        def edit(file: str, old: str, new: str) -> None:
            before.setdefault(path := repro.folder / file, path.read_bytes())
            repro.edit(file, old, new)

        yield edit
        for path, content in before.items():
            path.write_bytes(content)

    @pytest.mark.parametrize("name", [
        "grammar_tiny/kn3-1", KN3, f"outputs/{KN3}/", "kn3-1", "pretrain-kn3-1", f"{GRAPH}:pretrain-kn3-1",
    ])  # fmt: skip
    def test_there_is_nothing_to_do(self, why, name):
        assert why(name) == []

    def test_code_has_changed(self, why, edited):
        edited(
            "src/retable/models/ngram.py", "class KneserNey(Interpolated):", "class KneserNey(Interpolated):\n    x = 1"
        )
        edited("src/retable/models/gpt.py", '"""', '"""Edited. ')
        assert why() == ["code: retable.models.ngram.KneserNey, since HEAD"]

    def test_a_setting_has_changed_before_and_after_plans_are_made_anew(self, why, edited, repro):
        edited(self.RECIPE, "order: 3", "order: 2")
        assert why() == ["model.order: 3 -> 2"]
        waits = f"it waits for {self.KN3}, which would run: `retable why {self.KN3}`"
        of_loaded = f"{self.KN3} model.order: 3 -> 2"
        assert why("kn3-1-perplexity-phenomena") == [of_loaded, waits]
        repro("dvc", "repro", f"{GRAPH}:plan")
        assert why() == ["model.order: 3 -> 2"]
        cache = repro.folder / ".dvc/cache"
        cache.rename(cache.with_name("away"))
        first, *_ = why()
        shutil.rmtree(cache, ignore_errors=True)
        cache.with_name("away").rename(cache)
        assert first.endswith("the plan that it was made by is neither in outputs/plan nor in DVC's cache")

    def test_inputs_the_command_or_the_result_have_changed(self, why, edited, repro):
        lock, path = GRAPH.replace(".yaml", ".lock"), "outputs/encode/grammar_tiny/word/train.bin"
        made = yaml.safe_load((repro.folder / lock).read_text(encoding="utf-8"))["stages"]["pretrain-kn3-1"]
        (md5,) = (dep["md5"] for dep in made["deps"] if dep["path"] == path)
        edited(lock, md5, "f" * 32)
        assert why() == [f"{path} has changed"]
        edited(lock, "f" * 32, md5)
        edited(lock, "recipe=counted/kn3", "recipe=counted/kn2")
        assert why() == [f"its command was `{made['cmd'].replace('/kn3', '/kn2')}`"]
        edited(lock, "recipe=counted/kn2", "recipe=counted/kn3")
        edited(f"outputs/{self.KN3}/metrics.json", "{", "{ ")
        assert why() == [f"outputs/{self.KN3} has changed; what it was is in DVC's cache"]

    def test_a_cell_is_new_or_there_is_none(self, why, edited, repro):
        edited("conf/study/lineage.yaml", "- kn5", "- kn5\n  - unigram")
        assert why("grammar_tiny/unigram-1") == ["it was never made in this project"]
        edited("conf/study/lineage.yaml", "- kn5\n  - unigram", "- kn5")
        command = [str(repro.python), "-m", "pipelines.command", "why", "grammar_tiny/kn33-1"]
        done = subprocess.run(command, cwd=repro.folder, env=repro.environment, capture_output=True, text=True)
        assert done.returncode == 2
        assert done.stderr == "error: grammar_tiny/kn33-1 is no cell of a study; write grammar_tiny/kn3-1\n"
