"""Test mixtures in stage pretrain, and studies that need a GPU: their cost, and their missing data."""

import re
import shutil
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from dvc.repo import Repo
from hydra.utils import instantiate

from pipelines.config.project import STUDIES
from pipelines.execute.repro import stages_of
from pipelines.study import compose, dvc_project
from retable.core.errors import UsageError
from retable.inference.build import build_model, build_objective
from retable.training.weights import matrix_parameters
from tests.pipelines.conftest import TINY
from tests.pipelines.recipes import composed

SMALL = [TINY, "tokenizer=unigram", "model.d_model=8", "model.n_layers=1", "model.n_heads=1", "system=x",
         "batches.batch_size=4", "batches.length=24", "epochs=0.1"]  # fmt: skip


@pytest.fixture(scope="module")
def unigrams(own):
    """Return a project whose corpus grammar_tiny, with a task, and corpus other have the same tokenizer."""
    own.succeed("tokenize", TINY, "tokenizer=unigram", "tokenizer.train.vocab_size=300")
    path = "tokenizer.train.path=outputs/tokenize/grammar_tiny/unigram/tokenizer.json"
    own.succeed("tokenize", TINY, "tokenizer=pretrained", path, "out=other/pretrained")
    return own


def test_tasks_beside_spans(unigrams):
    tasks = "batches.tasks=[outputs/prepare/grammar_tiny/sentiment]"
    unigrams.succeed("pretrain", *SMALL, "recipe=t5/t5_multitask", "model.d_ff=8", tasks)
    metrics = unigrams.read("pretrain/grammar_tiny/x-1/metrics.json")
    assert metrics["steps"] > 1 and {"validation/loss", "validation/accuracy"} < set(metrics)


def test_corpora_by_weight(unigrams):
    mixture = ["batches._target_=retable.data.mixture.MixedCorpora", "recipe=transformer/gpt", "model.max_length=24",
               "+batches.kind={_target_: retable.data.streams.ShuffledWindows, _partial_: true}", "scorer.stride=24",
               "+batches.corpora={grammar_tiny/unigram: 0.7, other/pretrained: 0.3}"]  # fmt: skip
    unigrams.succeed("pretrain", *SMALL, *mixture)
    assert unigrams.read("pretrain/grammar_tiny/x-1/metrics.json")["validation/loss"] > 0
    mixture[-1] = mixture[-1].replace("other/pretrained", "grammar_tiny/word")
    assert "grammar_tiny/word" in unigrams.refuse("pretrain", *SMALL, *mixture)


def header(path: Path) -> str:
    """Return the text of the file before its first setting, in one line."""
    lines = path.read_text(encoding="utf-8").split("\n")
    first = next(place for place, line in enumerate(lines) if not line.startswith("#"))
    return " ".join(line.lstrip("# ") for line in lines[:first])


SIZES = {"gpt2_124m_500": (50_257, 500 * 2**19), "gpt2_124m": (50_257, 19_559 * 2**19),
         "gpt2_babylm": (16_384, 160e6 * 10), "electra_small_owt": (30_522, 128 * 128 * 1e6),
         "bert_small_owt": (30_522, 128 * 128 * 1.45e6)}  # fmt: skip
TRAINED = {"babylm": ["gpt2_babylm"], "fineweb_gpt2": ["gpt2_124m_500", "gpt2_124m"],
           "electra_small": ["electra_small_owt", "bert_small_owt"]}  # fmt: skip
PEAK, SHARE = 989e12, 0.4  # peak of an H100 in FLOP/s, and the assumed share of it


@cache
def objective_of(name: str):
    cfg = composed("pretrain", name, "trainer=gpu")
    words = SimpleNamespace(vocab_size=SIZES[name][0], words=(), boundary=0, special_ids={})
    with torch.device("meta"):
        return build_objective(cfg, words, build_model(cfg, words))


@pytest.mark.parametrize(("study", "name"), [(study, name) for study, names in TRAINED.items() for name in names])
def test_headers_say_what_the_training_costs(study, name):
    flops = 6 * matrix_parameters(objective_of(name)) * SIZES[name][1]
    shown = re.findall(r"([\d.]+e\d+)", header(STUDIES / study / "study.yaml"))
    assert f"{flops:.1e}".replace("e+", "e") in shown
    minutes = flops / PEAK / SHARE / 60
    times = re.findall(r"([\d.]+) (minutes|hours|and [\d.]+ hours)", header(STUDIES / study / "study.yaml"))
    amounts = [float(n) * (1 if unit == "minutes" else 60) for n, unit in times]
    amounts += [float(unit.split()[1]) * 60 for _, unit in times if unit.startswith("and")]
    assert any(abs(amount - minutes) < 0.05 * minutes for amount in amounts), (minutes, amounts)


def test_sizes_are_the_published_ones():
    sizes = {name: sum(p.numel() for p in objective_of(name).parameters()) for name in SIZES}
    assert sizes["gpt2_124m"] == sizes["gpt2_124m_500"] == 124_439_808
    # BabyLM has 1024 positions, and uses 512 of them
    assert sizes["gpt2_babylm"] + 512 * 768 == pytest.approx(98.4e6, abs=0.05e6)
    assert sizes["electra_small_owt"] == pytest.approx(14e6, rel=0.05)


@pytest.mark.parametrize(
    ("corpus", "name", "steps"), [("fineweb", "gpt2_124m_500", 500), ("fineweb_10b", "gpt2_124m", 19_559)]
)
def test_an_epoch_of_fineweb_is_as_many_steps(corpus, name, steps):
    cfg = composed("pretrain", name, f"corpus={corpus}")
    tokens = np.broadcast_to(np.uint16(0), cfg.corpus.write.train_tokens)  # this array needs no memory
    batches = instantiate(cfg.batches, tokens=tokens, seed=1)
    assert batches.steps_per_epoch * cfg.epochs == steps and batches.tokens_per_step == 2**19
    assert cfg.trainer.accumulate_grad_batches == 16


def test_the_first_steps_are_those_of_the_whole_run():
    first, whole = (composed("pretrain", name, "trainer=gpu") for name in ("gpt2_124m_500", "gpt2_124m"))
    schedules = [(instantiate(cfg.schedule), steps) for cfg, steps in ((first, 500), (whole, 19_559))]
    rates = [[schedule(step, 1.0, steps, []) for step in range(500)] for schedule, steps in schedules]
    np.testing.assert_allclose(*rates)
    assert rates[0][0] == 1 / 700
    same = ("model", "objective", "batches", "trainer", "optimizer", "clip_norm", "scorer")
    assert all(first[part] == whole[part] for part in same)


@pytest.mark.parametrize(("study", "missing"), [("babylm", "data/babylm"), ("fineweb_gpt2", "data/fineweb10B-gpt2"),
                                                ("electra_small", "data/openwebtext")])  # fmt: skip
def test_a_study_says_what_data_it_misses(tmp_path, monkeypatch, study, missing):
    monkeypatch.chdir(tmp_path)
    shutil.copyfile(STUDIES / study / "study.yaml", "study.yaml")
    Repo.init(no_scm=True).close()
    dvc_project.graph()
    with pytest.raises(UsageError, match=f"{missing}.* does not exist, but study .* reads it in prepare@") as error:
        stages_of(compose.study_here())
    assert str(error.value).endswith(f"; run `retable fetch --study {compose.study_here().name}`")
