"""Test that every training stage gives the same results in two processes as in one, with every optimizer and after
a kill.
"""

import signal
from pathlib import Path

import pandas as pd
import pytest
from hydra import compose, initialize_config_dir

from pipelines.config.project import CONF
from retable.core.digests import digest
from tests.pipelines.conftest import BILSTM, TWO

SHORT = ["corpus=grammar_tiny", "++max_steps=8", "validations=2"]
TASK = [*SHORT, "batch_size=4", "dropout=0"]
STAGES = {
    "embed": ["embed", *SHORT[:2], "recipe=vectors/skipgram", "word_by_word=false", "batch_tokens=64",
              "model.d_model=8"],
    "lstm": ["pretrain", *SHORT, "recipe=recurrent/lstm", "model.d_model=8", "batches.length=16",
             "batches.batch_size=4"],
    "gpt": ["pretrain", *SHORT, "recipe=transformer/gpt", "tokenizer=word", "model.d_model=16", "model.n_layers=2",
            "model.dropout=0", "batches.batch_size=4", "batches.length=16"],
    "bert": ["pretrain", *SHORT, "recipe=bert/bert", "tokenizer=word_marked", "model.d_model=16", "model.n_layers=2",
             "model.dropout=0", "batches.batch_size=4", "batches.length=32"],
    "sentences": ["finetune", *TASK, *BILSTM, "task=sentiment"],
    "tags": ["finetune", *TASK, "task=grammar_pos", "recipe=taggers/bilstm_crf", "model.d_embedding=8",
             "model.d_model=8", "task.sentences.text.words={train: 600, validation: 200, test: 200}"],
    "answers": ["finetune", *TASK, "task=grammar_questions_tiny", "recipe=readers/bidaf", "model.d_hidden=8",
                "task.questions.questions={train: 40, validation: 10, test: 20}"],
    "translation": ["finetune", "corpus=grammar_pairs_tiny", "task=translation", "decoding=greedy", "tokenizer=word",
                    "recipe=translation/transformer_translation_grammar", "model.d_model=16", "model.dropout=0",
                    "decoding.max_new_tokens=8", "batches.max_tokens=128", "validations=2", "++max_steps=8"],
}  # fmt: skip
RATES = {"sgd": 0.1, "adamw": 1e-3, "adafactor": 1e-2, "adagrad": 1e-2}


@pytest.fixture(scope="module")
def project(project):
    """Return a project in which stages start a second process, or are killed."""
    return project.forked


@pytest.fixture(scope="module")
def train(project):
    """Train a stage with an optimizer in one or two processes. Return its cell; with `die_at`, it is killed there
    first.
    """
    folders: dict[str, Path] = {}

    def once(name: str, trainer: str, optimizer: str, die_at: str = "") -> Path:
        system = f"{name}_{trainer}_{optimizer}{die_at}"
        if system not in folders:
            stage, *settings = STAGES[name]
            prepare(project, name)
            settings += [f"trainer={trainer}", *(TWO if trainer != "cpu" else []), "checkpoint_every=3"]
            settings += [*learnt_by(stage, settings, optimizer), "+callbacks.mortal._target_=dying.Mortal"]
            settings += [f"system={system}", "logger=none"]
            if die_at:
                killed = project.run(stage, *settings, DIE_AT=die_at)
                assert killed.returncode == -signal.SIGKILL, killed.stderr
            project.succeed(stage, *settings)
            (folders[system],) = project.folder.glob(f"outputs/{stage}/*/*{system}-1")
        return folders[system]

    return once


def prepare(project, name: str) -> None:
    """Make, once, what only this stage reads."""
    encoded = project.folder / "outputs/tokenize"
    if name == "bert" and not (encoded / "grammar_tiny/word_marked").exists():
        project.succeed("tokenize", "corpus=grammar_tiny", "tokenizer=word_marked")
    if name == "translation" and not (encoded / "grammar_pairs_tiny").exists():
        few = "corpus.write.pairs={train: 100, validation: 10, test: 10}"
        project.succeed("prepare", "corpus=grammar_pairs_tiny", few)
        project.succeed("tokenize", "corpus=grammar_pairs_tiny")


def learnt_by(stage: str, settings: list[str], optimizer: str) -> list[str]:
    """Return what a recipe learns with another optimizer than its default."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        composed = compose(stage, overrides=[each for each in settings if not each.startswith("corpus.write")])
    kept = ("_target_", "_partial_", "lr", *(["weight_decay"] if optimizer == "adamw" else []))
    own = [f"~optimizer.{key}" for key in composed.optimizer if key not in kept]
    own += ["++optimizer.weight_decay=0.01"] if optimizer == "adamw" else []
    return [*own, f"optimizer._target_=retable.training.optimizers.{optimizer}", f"optimizer.lr={RATES[optimizer]}"]


@pytest.mark.matrix
@pytest.mark.parametrize("optimizer", RATES)
@pytest.mark.parametrize("trainer", ["ddp", "fsdp"])
@pytest.mark.parametrize("name", STAGES)
def test_two_processes_train_as_one_and_past_a_kill(train, name, trainer, optimizer):
    two = train(name, trainer, optimizer)
    ours, theirs = (pd.read_csv(cell / "curve.csv") for cell in (two, train(name, "cpu", optimizer)))
    assert ours[["step", "metric"]].equals(theirs[["step", "metric"]])
    losses = ours["metric"].str.endswith("loss")
    assert losses.sum() >= 8
    # Six digits of numbers about 1; rounding errors grow over eight steps.
    assert ours["value"][losses].to_numpy() == pytest.approx(theirs["value"][losses].to_numpy(), rel=1e-4, abs=1e-5)
    killed = train(name, trainer, optimizer, die_at="5")
    for file in ("model.safetensors", "curve.csv", "metrics.json"):
        assert digest(killed / file) == digest(two / file), file
