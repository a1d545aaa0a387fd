import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from mlflow.tracking import MlflowClient

from pipelines.executors.client import submit
from pipelines.executors.local import SERVER, server
from retable.core.artifacts import record_file
from retable.core.stages import module_of
from retable.planning.cell import Cell
from retable.planning.graph import params_of, params_text
from retable.planning.study import Study
from tests.conftest import last_of_each
from tests.pipelines import in_process

ROOT = Path(__file__).parent.parent.parent
PATHS = ROOT / "src", ROOT, ROOT / "tests/pipelines"  # the code of this checkout, even if another one is installed
ENVIRONMENT = {"PYTHONPATH": os.pathsep.join(map(str, PATHS)), "MLFLOW_ENABLE_SYSTEM_METRICS_LOGGING": "false"}

SMALL_CORPUS = [
    "corpus=grammar_tiny",
    "corpus.write.words={train: 3000, validation: 600, test: 900}",
    "corpus.write.task_examples={train: 60, validation: 20, test: 40}",
]

# Two CPU processes, with the precision of a command that sets none.
TWO = ["trainer.accelerator=cpu", "trainer.devices=2", "trainer.precision=32-true"]
TINY = "corpus=grammar_tiny"
SHORT = [TINY, "+max_steps=3", "epochs=1"]
TASK = [TINY, "finetuning.batch_size=8", "epochs=0.2"]
BILSTM = ["recipe=encoders/bilstm", "model.d_embedding=8", "model.d_model=8"]
GPT = ["recipe=transformer/gpt", "model.d_model=16", "model.n_layers=1"]
BERT = ["recipe=bert/bert", "tokenizer=word_marked", "model.d_model=16", "model.n_layers=2", "model.n_heads=2"]
ELMO = ["recipe=elmo/elmo", "model.d_model=8", "model.d_cell=8", "model.filters=[[1,4]]", "batches.length=16"]
SPELT = ["model.d_embedding=6", "model.d_character=3", "model.filters=[[2,4]]"]
PAIRS = "corpus=grammar_pairs_tiny"
SKIPGRAM = "embedding=outputs/embed/grammar_tiny/skipgram-1/vectors.bin"
# Small cells of every kind of system, from every stage except `scaling`, which measures times.
CELLS = {
    "prepare/grammar_tiny": ["prepare", *SMALL_CORPUS],
    "tokenize/grammar_tiny/word": ["tokenize", TINY],
    "tokenize/grammar_tiny/word_marked": ["tokenize", TINY, "tokenizer=word_marked"],
    "tokenize/grammar_tiny/bpe": ["tokenize", TINY, "tokenizer=bpe", "tokenizer.train.vocab_size=300"],
    "embed/grammar_tiny/skipgram-1": ["embed", *SHORT, "model.d_model=8"],
    "pretrain/grammar_tiny/kn3-1": ["pretrain", TINY, "recipe=counted/kn3"],
    "pretrain/grammar_tiny/cache-1": ["pretrain", TINY, "recipe=counted/cache"],
    "pretrain/grammar_tiny/gpt-1": ["pretrain", *SHORT, *GPT, "tokenizer=bpe", "batches.batch_size=4"],
    "pretrain/grammar_tiny/elman-1": ["pretrain", *SHORT, "recipe=recurrent/elman", "model.d_model=8"],
    "pretrain/grammar_tiny/bert-1": ["pretrain", *SHORT, *BERT, "batches.batch_size=2"],
    "pretrain/grammar_tiny/elmo-1": ["pretrain", *SHORT, *ELMO, "batches.batch_size=4"],
    "adapt/grammar_tiny/elman_neural_cache-1": [
        "adapt", TINY, "cell=grammar_tiny/elman-1", "system=elman_neural_cache",
    ],
    "mix/grammar_tiny/both-1": [
        "mix", TINY, "cells=[pretrain/grammar_tiny/kn3-1,pretrain/grammar_tiny/cache-1]", "system=both",
    ],
    "finetune/grammar_tiny/sentiment-bilstm-1": ["finetune", *TASK, *BILSTM, "task=sentiment", SKIPGRAM],
    "finetune/grammar_tiny/acceptability-gpt-1": [
        "finetune", *TASK, *GPT, "task=acceptability", "tokenizer=bpe", "init=pretrain/grammar_tiny/gpt-1",
    ],
    "from_scratch/grammar_pos/bilstm_crf-1": [
        "finetune", *TASK, "task=grammar_pos", "recipe=taggers/bilstm_crf", "model.d_embedding=8", "model.d_model=8",
        "task.sentences.text.words={train: 600, validation: 200, test: 200}",
    ],
    "from_scratch/grammar_questions_tiny/bidaf-1": [
        "finetune", *TASK, "task=grammar_questions_tiny", "recipe=readers/bidaf", *SPELT, "model.d_hidden=8",
        "task.questions.questions={train: 24, validation: 8, test: 16}",
    ],
    "from_scratch/grammar_documents_tiny/mention_ranker-1": [
        "finetune", *TASK, "task=grammar_documents_tiny", "recipe=coreference/mention_ranker", *SPELT,
        "model.d_model=12", "model.d_hidden=8", "model.max_width=2", "model.max_antecedents=5",
        "task.documents.words={train: 600, validation: 200, test: 300}",
    ],
    "prepare/english_endings_tiny": [
        "prepare", "corpus=english_endings_tiny", "corpus.write.lexicon=invented",  # the words of grammar_tiny
        "corpus.write.examples={train: 60, validation: 20, test: 20}",
    ],
    "from_scratch/grammar_tiny/sentiment_prefixes-lstm_prefixes-1": [
        "finetune", TINY, "task=sentiment_prefixes", "recipe=encoders/lstm_prefixes", "model.d_model=8", "epochs=1",
    ],
    "from_scratch/grammar_summaries_tiny/lead_3-1": [
        "finetune", *TASK, "task=grammar_summaries_tiny", "recipe=summaries/lead_3",
        "task.documents.documents={train: 4, validation: 4, test: 6}",
    ],
    "from_scratch/english_endings_tiny/bilstm-1": ["finetune", *TASK, *BILSTM, "task=english_endings_tiny", "epochs=3"],
    "prepare/grammar_pairs_tiny": [
        "prepare", PAIRS, "corpus.write.pairs={train: 200, validation: 10, test: 12}",
    ],
    "tokenize/grammar_pairs_tiny/word": ["tokenize", PAIRS],
    "from_scratch/grammar_pairs_tiny/rnn_translation_grammar-1": [
        "finetune", PAIRS, "task=translation", "tokenizer=word", "decoding=greedy", "epochs=1", "model.d_model=16",
        "recipe=translation/rnn_translation_grammar", "model.d_embedding=16", "batches.max_tokens=256",
        "decoding.max_new_tokens=12",
    ],
    "evaluate/grammar_tiny/both-1": ["evaluate", TINY, "stage=mix", "cell=grammar_tiny/both-1"],
    "evaluate/grammar_tiny/gpt-1": ["evaluate", TINY, "tokenizer=bpe", "cell=grammar_tiny/gpt-1"],
    "evaluate/grammar_tiny/elman-1": ["evaluate", TINY, "cell=grammar_tiny/elman-1"],
    "evaluate/grammar_tiny/elmo-1": ["evaluate", TINY, "cell=grammar_tiny/elmo-1"],
    "evaluate/grammar_tiny/elman_neural_cache-1": [
        "evaluate", TINY, "stage=adapt", "cell=grammar_tiny/elman_neural_cache-1",
    ],
    "evaluate/grammar_tiny/skipgram-1": [
        "evaluate", TINY, "stage=embed", "cell=grammar_tiny/skipgram-1", "benchmark=neighbours",
    ],
    "generate/grammar_tiny/gpt-1-top_p": ["generate", "cell=grammar_tiny/gpt-1", "n_prompts=2"],
}  # fmt: skip


def track(folder: Path, cells: list[Cell]) -> Path:
    """Make a folder the folder of a study with these cells. Return the file that lists them."""
    study = Study("tracked", {cell.place: cell for cell in cells}, {})
    params = params_of(study, dict.fromkeys(study.cells, ()))
    (path := folder / "params.yaml").write_text(params_text(params, "study.yaml"), encoding="utf-8")
    return path


@contextlib.contextmanager
def unrecorded(cell: Path) -> Iterator[None]:
    """Remove the record of a cell in `outputs/` inside the block, as if the cell was made elsewhere."""
    kept = cell.parents[3] / "work/made"
    away = {path: path.with_name(f"{path.name}.away") for path in (record_file(cell), kept)}
    for path, other in away.items():
        path.rename(other)
    yield
    shutil.rmtree(kept, ignore_errors=True)
    for path, other in away.items():
        other.rename(path)


@cache
def empty_store() -> bytes:
    """Return the file of an empty MLflow store, because creating its tables takes seconds."""
    with tempfile.TemporaryDirectory() as folder:
        MlflowClient(f"sqlite:///{folder}/mlflow.db").search_experiments(max_results=1)
        return Path(folder, "mlflow.db").read_bytes()


class Project:
    """An empty folder in which stages run, as in a project's folder.

    forks: the address of the server that forks processes of stages. own_process: whether `run` forks a process, instead
    of running a stage in the process of the test.
    """

    def __init__(self, folder: Path, forks: str, own_process: bool = False):
        self.folder, self.forks, self._own_process = folder, forks, own_process

    @classmethod
    def new(cls, folder: Path, forks: str) -> "Project":
        """Return a folder that contains only an empty store."""
        folder.mkdir(exist_ok=True)
        (folder / "mlflow.db").write_bytes(empty_store())
        return cls(folder, forks)

    @property
    def forked(self) -> "Project":
        """Return the same folder with stages in separate processes, for tests of packages, signals, threads and
        several processes.
        """
        return Project(self.folder, self.forks, own_process=True)

    def run(self, stage: str, *overrides: str, **environment: str) -> subprocess.CompletedProcess:
        """Run a stage, or a script by its path, and return its exit code and what it printed."""
        variables = os.environ | ENVIRONMENT | environment
        script, overrides = stage.endswith(".py"), last_of_each(overrides)
        if not self._own_process and not script:
            return in_process.run(stage, overrides, self.folder, variables | {SERVER: self.forks})
        with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
            module = stage if script else module_of(stage)
            code = submit(self.forks, module, overrides, str(self.folder), variables, out.name, err.name)
            return subprocess.CompletedProcess([stage, *overrides], code, out.read(), err.read())

    def start(self, stage: str, *overrides: str) -> subprocess.CompletedProcess:
        """Start a stage with Python, as a user does; this takes seconds longer."""
        return subprocess.run(
            [sys.executable, "-m", module_of(stage), *last_of_each(overrides)],
            cwd=self.folder, env=os.environ | ENVIRONMENT, capture_output=True, text=True,
        )  # fmt: skip

    def files(self) -> set[Path]:
        """Return the paths of all files in outputs/ and results/."""
        folders = (self.folder / name for name in ("outputs", "results"))
        return {path.relative_to(self.folder) for each in folders for path in each.rglob("*") if path.is_file()}

    def refuse(self, stage: str, *overrides: str, **environment: str) -> str:
        """Return the error line of a stage that refuses a user's mistake; check that it exits with code 2 and
        writes nothing.
        """
        before = self.files()
        done = self.run(stage, *overrides, **environment)
        lines = done.stderr.strip().splitlines()
        assert done.returncode == 2 and len(lines) == 1 and lines[0].startswith("error: "), done.stderr
        assert self.files() == before
        return lines[0]

    def read(self, path: str) -> Any:
        """Return the content of a JSON file in outputs/."""
        return json.loads((self.folder / "outputs" / path).read_text(encoding="utf-8"))

    def succeed(self, stage: str, *overrides: str, **environment: str) -> subprocess.CompletedProcess:
        done = self.run(stage, *overrides, **environment)
        assert done.returncode == 0, done.stderr
        return done


@pytest.fixture(scope="session")
def forks():
    """Return the address of the fork server of pipelines/executors/local.py."""
    with server() as address:
        yield address


@pytest.fixture(scope="session")
def project(tmp_path_factory, forks) -> Project:
    """Return a project with a corpus grammar_tiny of a few thousand words, prepared and tokenized."""
    made = Project.new(tmp_path_factory.mktemp("project"), forks)
    made.succeed("prepare", *SMALL_CORPUS)
    made.succeed("tokenize", "corpus=grammar_tiny")
    return made


@pytest.fixture
def bare_project(tmp_path, forks) -> Project:
    """Return a project that contains only the source of the built-in corpus."""
    (tmp_path / "src").symlink_to(ROOT / "src")
    return Project.new(tmp_path, forks)


@pytest.fixture(scope="session")
def cells(tmp_path_factory, worker_id, forks) -> Project:
    """Return a project with CELLS; all workers share them, so tests must not change them."""
    base = tmp_path_factory.getbasetemp()
    made = Project((base if worker_id == "master" else base.parent) / "cells", forks)
    with FileLock(f"{made.folder}.lock"):
        if not (finished := made.folder.with_name("cells.made")).exists():
            Project.new(made.folder, forks)
            for command in CELLS.values():
                made.succeed(*command)
            finished.touch()
    return made


@pytest.fixture(scope="module")
def own(cells, tmp_path_factory) -> Project:
    """Return a copy of the cells for one test file, whose tests may change the copy."""

    def passing(folder: str, names: list[str]) -> set[str]:  # another test may write these files meanwhile
        of_runs = names if Path(folder) == cells.folder / "work" else []
        return {*of_runs} - {"made"} | {
            each for each in names if each in ("mlartifacts", "log") or each.endswith("-journal")
        }

    folder = tmp_path_factory.mktemp("own")
    shutil.copytree(cells.folder, folder, dirs_exist_ok=True, ignore=passing)
    return Project(folder, cells.forks)
