"""Test pairs of sentences → tokens → a translator, stage by stage, on a copying task."""

import json

import numpy as np
import pandas as pd
import pytest
import sacrebleu

from retable.metrics.translation import COLUMNS, translation_score

SIZES = {"train": 50, "val": 8, "test_2016_flickr": 10, "test_2017_flickr": 6, "test_2017_mscoco": 4}
WORDS = [f"{a}{b}" for a in "bdgk" for b in "aeiou"]
CORPUS = ["corpus=multi30k", "tokenizer=word"]
SMALL = [
    *CORPUS, "task=translation", "recipe=translation/rnn_translation", "model.d_model=16", "model.d_embedding=16",
    "batches.max_tokens=64", "epochs=1", "alignments=2", "decoding.num_beams=2", "decoding.max_new_tokens=8",
]  # fmt: skip


@pytest.fixture(scope="module")
def translated(project):
    """Return a project with a corpus whose targets equal its sources, and its translator."""
    raw, generator = project.folder / "translated", np.random.default_rng(0)
    raw.mkdir()
    for name, size in SIZES.items():
        lines = "".join(" ".join(generator.choice(WORDS, generator.integers(1, 6))) + "\n" for _ in range(size))
        for side in ("en", "de"):
            (raw / f"{name}.{side}").write_text(lines)
    project.succeed("prepare", "corpus=multi30k", "corpus.folder=translated")
    project.succeed("tokenize", *CORPUS)
    project.succeed("finetune", *SMALL)
    return project


def test_a_translator_leaves_its_translations_and_their_scores(translated):
    cell, text = (translated.folder / "outputs" / part for part in ("from_scratch/multi30k/rnn_translation-1",
                                                                    "prepare/multi30k"))  # fmt: skip
    metrics, run = (json.loads((cell / name).read_text()) for name in ("metrics.json", "run.json"))
    for split, task, size in (("test", "translation", 10), ("test_2017", "translation_2017", 6),
                              ("test_coco", "translation_coco", 4)):  # fmt: skip
        written = (cell / f"translations.{split}.txt").read_text().split("\n")[:-1]
        references = (text / f"{split}.target.txt").read_text().split("\n")[:-1]
        assert len(written) == size
        assert metrics[f"{task}/test/bleu"] == pytest.approx(sacrebleu.corpus_bleu(written, [references]).score)
        assert metrics[f"{task}/test/chrf"] == pytest.approx(sacrebleu.corpus_chrf(written, [references]).score)
    assert run["signatures"]["bleu"].startswith("nrefs:1|case:mixed|eff:no|tok:13a")
    assert (run["protocol"], run["task"], run["system"]) == ("beam_5", "translation", "rnn_translation")
    assert run["made_from"] == ["prepare/multi30k", "tokenize/multi30k/word"]
    units = pd.read_csv(cell / "units.csv")
    assert units.groupby("split").size().to_dict() == {"test": 10, "test_2017": 6, "test_coco": 4}
    for split, task in (("test", "translation"), ("test_2017", "translation_2017")):
        sums = units[units["split"] == split][COLUMNS["chrf"]].sum()
        assert translation_score("chrf", sums) == metrics[f"{task}/test/chrf"]


def test_alignments_are_of_the_first_test_sentences(translated):
    cell = translated.folder / "outputs/from_scratch/multi30k/rnn_translation-1"
    table = pd.read_csv(cell / "alignments.csv", keep_default_na=False)
    sources = (translated.folder / "outputs/prepare/multi30k/test.source.txt").read_text().split("\n")
    for sentence, rows in table.groupby("sentence"):
        words = rows.drop_duplicates("source_place").sort_values("source_place")["source"].tolist()
        assert " ".join(words) == f"{sources[sentence]} <eos>"
        np.testing.assert_allclose(rows.groupby("target_place")["weight"].sum(), 1, atol=1e-3)
    assert set(table["sentence"]) == {0, 1}
