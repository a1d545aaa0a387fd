"""Test hostile values of every setting of every stage: each is used, or a one-line error comes before anything is
written.

FUZZ_COUNT command lines are drawn with FUZZ_SEED and checked; for a training, its parts are built. `cases.txt` has past
faults, one command line each:

    FUZZ_COUNT=20000 FUZZ_SEED=1 python -m pytest tests/fuzz/test_settings.py
"""

import os
import random
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from hydra import initialize_config_dir
from omegaconf import OmegaConf

from pipelines.config.project import CONF
from retable.core.settings import build
from retable.inference.build import build_counted, build_model, build_objective
from tests.fuzz.bounds import blocks, check, refusal
from tests.pipelines.checked import check as check_settings
from tests.pipelines.checked import composed

pytestmark = [] if "FUZZ_COUNT" in os.environ else pytest.mark.long

COUNT, SEED = int(os.environ.get("FUZZ_COUNT", 150)), int(os.environ.get("FUZZ_SEED", 1))
CASES = Path(__file__).with_name("cases.txt").read_text(encoding="utf-8").splitlines()
TINY = ["corpus=grammar_tiny"]
TRAINED = ["model.d_model=16", "batches.batch_size=4", "batches.length=16", "epochs=0.05"]
COMMANDS = [
    *(["pretrain", *TINY, f"recipe={recipe}"] for recipe in (
        "recurrent/lstm", "transformer/gpt", "counted/kn5", "counted/kn5_pruned", "bert/electra", "t5/t5", "elmo/elmo",
        "window/fixed_window", "window/gcnn_14", "recurrent/awd_lstm", "transformer/transformer_xl",
        "recurrent/character_lstm_small", "t5/t5_multitask", "counted/snm_skip", "recurrent/residual_lstm")),
    *(["embed", *TINY, f"recipe=vectors/{recipe}"] for recipe in ("skipgram", "glove", "fasttext")),
    *(["finetune", *TINY, f"recipe={recipe}", f"task={task}"] for recipe, task in (
        ("encoders/bilstm", "sentiment"), ("transformer/gpt", "acceptability"),
        ("taggers/bilstm_crf", "grammar_pos_tiny"),
        ("bert/bert", "grammar_questions_tiny"), ("translation/rnn_translation", "translation"),
        ("bert/bert", "english_endings_tiny"), ("coreference/mention_ranker", "grammar_documents_tiny"),
        ("readers/bidaf", "squad"), ("taggers/role_labeller", "conll2005_roles"), ("t5/t5_text", "rte"))),
    *(["evaluate", *TINY, f"benchmark={benchmark}"] for benchmark in (
        "perplexity", "phenomena", "sampling", "spans_bound", "gradients", "sst2_few_shot", "analogies", "blimp_ptb")),
    *(["generate", f"decoding={decoding}"] for decoding in ("beam", "top_p", "exact", "greedy")),
    *(["prepare", f"corpus={corpus}"] for corpus in ("grammar_tiny", "ptb", "multi30k", "fineweb", "grammar_senses")),
    *(
        ["tokenize", *TINY, f"tokenizer={name}"]
        for name in ("word", "bpe", "wordpiece_uncased", "unigram", "pretrained")
    ),
    *(["adapt", f"adaptation={name}"] for name in ("neural_cache", "dynamic", "dynamic_rms")),
    *([stage] for stage in ("mix", "report", "scaling")),
]  # fmt: skip
VALUES = [
    "0", "-1", "1", "3", "7", "0.5", "1.5", "-0.5", "1e30", "-1e30", "nan", "inf", "-inf", "abc", "''", "null", "[]",
    "{}", "true", "false", "x" * 300, "größe", "'a b'", r'"a\nb"', "1000000000000", str(10**30), "${x}", "${seed}",
    "???", "[1,2]", "[[1,2],[3,4]]", "{a: 1}", "{a: {b: []}}", "[null]", "{_target_: torch.load, f: x}",
    "[{_target_: os.system}]", "{_target_: retable.models.vector_files.write_word2vec}", "../../x", "/", ".", "word",
    "mean", "none", "${oc.env:HOME}", "'\u202e'", "0x10", "1_000", "'0'", "'true'", "1e-320", "-0.0",
]  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def composing():
    with initialize_config_dir(str(CONF), version_base="1.3"):
        yield


class Words:
    """A tokenizer of few words, with what models and objectives need from one."""

    vocab_size, boundary = 50, 0
    words = tuple(f"w{i}" for i in range(50))
    special_ids: ClassVar = {
        "[PAD]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, **{f"<extra_id_{i}>": 5 + i for i in range(20)},
    }  # fmt: skip


def assemble(stage: str, cfg) -> None:
    """Build what a training stage builds before it makes a folder and takes its first step."""
    torch.manual_seed(1)
    tokens = np.random.default_rng(1).integers(1, 50, 4000)
    counts = np.bincount(tokens, minlength=50)
    if stage == "pretrain" and cfg.objective is None:
        build_counted(cfg, Words)
    elif stage == "pretrain":
        objective = build_objective(cfg, Words, build_model(cfg, Words))
        optimizer = build(cfg.optimizer, "optimizer")(objective)
        optimizer.step()
        rate = build(cfg.schedule, "schedule")(0, 10.0, 100, [])
        assert 0 <= rate < 10**4
    elif stage == "embed":
        model = build(cfg.model, "model", words=Words.words)
        build(cfg.objective, "objective", model=model, counts=counts)
        facts = {"tokens": tokens, "counts": counts, "boundary": 0, "seed": 1}
        build(cfg.batches, "batches", **facts).batch(0)
    elif stage == "finetune":
        build(cfg.task, "task")
    elif stage == "generate":
        build(cfg.decoding, "decoding")


def outcome(command: list[str], overrides: list[str], capsys) -> str:
    """Use the settings. Return nothing if they are accepted, otherwise the one-line error."""
    return refusal(lambda: assemble(command[0], check_settings(command, overrides)), capsys, longest=3000)


def settings(value, prefix=""):
    """Return the names of all settings, including those of groups."""
    for key, inner in value.items():
        yield f"{prefix}{key}"
        if isinstance(inner, dict):
            yield from settings(inner, f"{prefix}{key}.")


def drawn(number: int) -> tuple[list[str], list[str]]:
    """Return a command with hostile overrides."""
    dice = random.Random(f"{SEED} {number}")
    command = dice.choice(COMMANDS)
    whole = OmegaConf.to_container(composed(tuple(command)))
    names = [name for name in settings({key: part for key, part in whole.items() if key != "hydra"})]

    def override() -> str:
        name = dice.choice(names)
        match dice.randrange(12):
            case 0:
                return f"~{name}"
            case 1:
                return f"+{name}.{dice.choice(['extra', '_args_', '_recursive_', '_convert_', 'x' * 300])}=1"
            case 2:
                return f"++{name}{dice.choice(['', 's', '.lr', '_target_'])}={dice.choice(VALUES)}"
            case 3 if "." in name:
                return f"+{name[:-1]}={dice.choice(VALUES)}"
        return f"{name}={dice.choice(VALUES)}"

    return command, [override() for _ in range(dice.choice([1, 1, 1, 2, 3]))]


@pytest.mark.parametrize("numbers", blocks(COUNT))
def test_drawn_settings_are_used_or_refused_in_one_line(numbers, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def case(number: int):
        command, overrides = drawn(number)
        return f"{' '.join(command)} {overrides}", lambda: outcome(command, overrides, capsys)

    assert check(numbers, case)
    assert not [*tmp_path.iterdir()]


def test_what_was_found_before(capsys):
    for case in CASES:
        stage, *arguments = case.split()
        bare = next(command for command in COMMANDS if command[0] == stage and set(command[1:]) <= set(arguments))
        assert outcome(bare, [each for each in arguments if each not in bare], capsys), case
