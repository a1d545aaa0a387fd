"""A cell that is made again, in another folder at another time, is the same bytes: small cells of every stage but
`scaling`, which measures times."""

from pathlib import Path

import pytest
import yaml

from retable.artifacts import digest, read_record
from retable.training.precision import fastest_precision
from tests.pipelines.conftest import SMALL_CORPUS, Project

TINY = "corpus=grammar_tiny"
SHORT = [TINY, "+max_steps=3", "epochs=1"]
TASK = [TINY, "finetuning.batch_size=8", "epochs=0.2"]
BILSTM = ["recipe=encoders/bilstm", "model.d_embedding=8", "model.d_model=8"]
GPT = ["recipe=transformer/gpt", "model.d_model=16", "model.n_layers=1"]
SKIPGRAM = "embedding=outputs/embed/grammar_tiny/skipgram-1/vectors.bin"
CELLS = {
    "prepare/grammar_tiny": ["prepare", *SMALL_CORPUS],
    "encode/grammar_tiny/word": ["encode", TINY],
    "encode/grammar_tiny/bpe": ["encode", TINY, "tokenizer=bpe", "tokenizer.train.vocab_size=300"],
    "embed/grammar_tiny/skipgram-1": ["embed", *SHORT, "model.d_model=8"],
    "pretrain/grammar_tiny/kn3-1": ["pretrain", TINY, "recipe=counted/kn3"],
    "pretrain/grammar_tiny/cache-1": ["pretrain", TINY, "recipe=counted/cache"],
    "pretrain/grammar_tiny/gpt-1": ["pretrain", *SHORT, *GPT, "tokenizer=bpe", "batches.batch_size=4"],
    "mix/grammar_tiny/both-1": [
        "mix", TINY, "cells=[pretrain/grammar_tiny/kn3-1,pretrain/grammar_tiny/cache-1]", "system=both",
    ],
    "train/grammar_tiny/sentiment-bilstm-1": ["train", *TASK, *BILSTM, "task=sentiment", SKIPGRAM],
    "train/grammar_tiny/acceptability-gpt-1": [
        "train", *TASK, *GPT, "task=acceptability", "tokenizer=bpe", "init=pretrain/grammar_tiny/gpt-1",
    ],
    "train/grammar_pos/bilstm_crf-1": [
        "train", *TASK, "task=grammar_pos", "recipe=taggers/bilstm_crf", "model.d_embedding=8", "model.d_model=8",
        "task.sentences.text.words={train: 600, validation: 200, test: 200}",
    ],
    "evaluate/grammar_tiny/both-1-perplexity": ["evaluate", TINY, "stage=mix", "cell=grammar_tiny/both-1"],
    "evaluate/grammar_tiny/gpt-1-perplexity": ["evaluate", TINY, "tokenizer=bpe", "cell=grammar_tiny/gpt-1"],
    "evaluate/grammar_tiny/skipgram-1-neighbours": [
        "evaluate", TINY, "stage=embed", "cell=grammar_tiny/skipgram-1", "benchmark=neighbours",
    ],
    "generate/grammar_tiny/gpt-1-top_p": ["generate", "cell=grammar_tiny/gpt-1", "n_prompts=2"],
}  # fmt: skip


@pytest.fixture(scope="module")
def makings(tmp_path_factory, forks) -> list[Project]:
    made = [Project(tmp_path_factory.mktemp(name), forks) for name in ("first", "second")]
    for project in made:
        for command in CELLS.values():
            project.succeed(*command)
    return made


def files(cell: Path) -> dict[str, str]:
    return {str(path.relative_to(cell)): digest(path) for path in cell.rglob("*") if path.is_file()}


@pytest.mark.parametrize("place", CELLS)
def test_a_cell_made_again_is_the_same_bytes(place, makings):
    first, second = (project.folder / "outputs" / place for project in makings)
    assert {"config.yaml", "metrics.json", "run.json"} <= files(first).keys()
    assert files(first) == files(second)
    records = [read_record(cell) for cell in (first, second)]
    assert records[0]["mlflow_run_id"] != records[1]["mlflow_run_id"]


def test_a_cell_says_which_precision_auto_was(project):
    project.succeed("pretrain", *SHORT, *GPT, "batches.batch_size=4", "trainer.precision=auto", "system=gpt_auto")
    cell = project.folder / "outputs/pretrain/grammar_tiny/gpt_auto-1"
    config = yaml.safe_load((cell / "config.yaml").read_text(encoding="utf-8"))
    assert config["trainer"]["precision"] == fastest_precision("cpu")
    assert 0 < read_record(cell)["flops_utilisation"] < 1
