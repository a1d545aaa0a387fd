"""Test that every system has a display name, that no two names are equal, and that column headings have
explanations.
"""

import csv
from collections import Counter
from pathlib import Path

import pytest
import yaml

from retable.reporting.names import display_name, meaning
from retable.reporting.results import read_references
from retable.reporting.tables import EXTRA_COLUMNS, WHOLE

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def keys() -> set[str]:
    """Return recipes, tokenizers, published systems, and systems of committed metrics."""
    groups = [path.stem for group in ("recipe/*", "tokenizer") for path in ROOT.glob(f"conf/{group}/[!_]*.yaml")]
    measured = [
        row["system"]
        for path in ROOT.glob("studies/*/results/metrics.csv")
        for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    ]
    return {*groups, *measured, *read_references()["system"]}


def test_every_system_has_a_display_name(keys):
    assert {"kn5", "skipgram", "bpe", "rnn_kn5_cache", "few_tags_elmo"} <= keys
    assert [key for key in sorted(keys) if display_name(key) == key or "_" in display_name(key)] == []


def test_no_two_systems_have_one_display_name(keys):
    assert [name for name, count in Counter(map(display_name, keys)).items() if count > 1] == []


@pytest.mark.parametrize(
    ("key", "name"),
    {
        "kn5": "Kneser–Ney 5-gram (modified)",
        "rnn_ensemble_20_kn5_cache": "RNN, average of 20 + Kneser–Ney 5-gram + cache",
        "lstm_neural_cache": "LSTM + neural cache",
        "gpt_12_6e10": "GPT, width 12, 6e10 FLOPs",
        "he_2017_again + ELMo": "Highway BiLSTM (Peters et al. 2018) + ELMo",
        "mine": "mine",
        "mine_kn5": "mine_kn5",
    }.items(),
)
def test_a_derived_system_is_named_by_rule(key, name):
    assert display_name(key) == name


def test_the_usual_heads_have_a_meaning_and_every_meaning_is_of_a_head():
    assert all(map(meaning, (*WHOLE.values(), *EXTRA_COLUMNS.values())))
    folder = ROOT / "src/retable/reporting"
    heads = yaml.safe_load((folder / "names.yaml").read_text(encoding="utf-8"))["heads"]
    sources = [*ROOT.glob("conf/table/*.yaml"), *folder.glob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    assert [head for head in heads if head not in text] == []
