"""Run study conll2003 on a few sentences in the format of CoNLL-2003, with its own cells and settings."""

import re
from pathlib import Path

import numpy as np
import pytest

import retable
from pipelines.config.project import CONF, STUDIES
from retable.corpora.columns import read_tagged
from retable.planning.conf import Conf
from retable.planning.study import read_study
from tests.metrics.test_spans import conlleval
from tests.pipelines.conftest import Project

PEOPLE, PLACES, FIRMS = ("Blackburn", "Fischler", "Kohl"), ("Bonn", "Germany", "London"), ("Siemens", "Reuters", "BASF")
SIZES = {"train": 120, "testa": 30, "testb": 40}
QUICK = ("epochs=4", "batch_size=4", "dropout=0.1", "finetuning.lr=0.1")
SMALL = {
    "ma_hovy_bilstm_cnn_crf_glove": ("model.d_character=4", "model.n_filters=6", "model.d_model=16"),
    "lample_char_bilstm_crf_glove": ("model.d_character=4", "model.d_spelling=4", "model.d_model=12"),
}


def write_entities(path: Path, n_sentences: int, seed: int) -> None:
    """Write sentences in IOB1, in documents of ten; two neighbouring places are separate entities."""
    generator, lines = np.random.default_rng(seed), []

    def drawn(names: tuple[str, ...]) -> str:
        return str(generator.choice(names))

    for k in range(n_sentences):
        if k % 10 == 0:
            lines += ["-DOCSTART- -X- -X- O", ""]
        lines += [f"Peter NNP I-NP I-PER\n{drawn(PEOPLE)} NNP I-NP I-PER", "saw VBD I-VP O"]
        if generator.random() < 0.5:
            lines += [f"{drawn(FIRMS)} NNP I-NP I-ORG"]
        else:
            lines += [f"{drawn(PLACES)} NNP I-NP I-LOC", f"{drawn(PLACES)} NNP B-NP B-LOC"]
        lines += [f"1996-08-{generator.integers(10, 31)} CD I-NP O", ". . O O ", ""]
    path.write_text("\n".join(lines), encoding="utf-8", newline="\r\n" if "testb" in path.name else "\n")


@pytest.fixture(scope="module")
def made(tmp_path_factory, forks) -> Project:
    """Return a project in which two cells of the study were run, on data in its data folder."""
    project = Project.new(tmp_path_factory.mktemp("conll2003"), forks)
    for folder in ("conll2003", "glove"):
        (project.folder / "data" / folder).mkdir(parents=True)
    for seed, (split, n) in enumerate(SIZES.items()):
        write_entities(project.folder / f"data/conll2003/eng.{split}", n, seed)
    generator = np.random.default_rng(0)
    words = ["peter", "bonn", "london", "siemens", "reuters", "saw", ".", "0000-00-00"]
    lines = [" ".join([word, *map(str, generator.normal(size=100).round(3))]) for word in words]
    (project.folder / "data/glove/glove.6B.100d.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    study = read_study(Conf(CONF), STUDIES / "conll2003/study.yaml")
    for system, sizes in SMALL.items():
        settings = study.cells[f"finetune/conll2003_ner/{system}-1"].settings
        overrides = (*(f"{key}={value}" for key, value in settings.items()), *QUICK, *sizes)
        project.succeed("finetune", *overrides, RETABLE_DATA="data")
    return project


def cell(system: str) -> str:
    return f"finetune/conll2003_ner/{system}-1"


@pytest.mark.parametrize("system", SMALL)
def test_entities_are_learnt_and_scored_as_by_conlleval_on_the_file(made, system):
    """The entities of the file are in IOB1, and the model predicts IOBES; the counts are those of the file."""
    gold = read_tagged(made.folder / "data/conll2003/eng.testb")
    assert len(gold) == SIZES["testb"] and {tag for each in gold for tag in each.tags} == {
        "I-PER", "I-ORG", "I-LOC", "B-LOC", "O"}  # fmt: skip
    assert made.read(f"{cell(system)}/learnt.json")["tags"] == ["B-PER", "E-PER", "O", "S-LOC", "S-ORG"]
    text = (made.folder / "outputs" / cell(system) / "test.tags.txt").read_text(encoding="utf-8").strip()
    predicted = [[line.split(" ")[-1] for line in block.split("\n")] for block in text.split("\n\n")]
    correct, n_predicted, n_labelled = conlleval([each.tags for each in gold], predicted)
    assert n_labelled == sum(2 if "I-ORG" in each.tags else 3 for each in gold)
    f1 = made.read(f"{cell(system)}/metrics.json")["tagging/test/f1"]
    assert f1 == pytest.approx(2 * correct / (n_predicted + n_labelled)) and f1 > 0.9


@pytest.mark.parametrize("system", SMALL)
def test_a_saved_tagger_reads_new_words(made, system):
    tagger = retable.load(made.folder / "outputs" / cell(system))
    date = "0000-00-00" if system.startswith("lample") else "1996-08-22"  # `tag` replaces no digits
    words = ["Peter", "Fischlerer", "saw", "Reuters", date, "."]
    assert tagger.tag([words]) == [[*zip(words, ["B-PER", "E-PER", "O", "S-ORG", "O", "O"], strict=True)]]


def test_digits_are_zeros_for_lample_alone(made):
    """Words are looked up unchanged and in lower case; with zeros, the dates are one word, which has a vector."""
    words = {system: made.read(f"{cell(system)}/vocabulary.json")["words"] for system in SMALL}
    dates = {system: {word for word in each if word.startswith(("19", "00"))} for system, each in words.items()}
    assert dates["lample_char_bilstm_crf_glove"] == {"0000-00-00"}
    assert all(re.fullmatch(r"1996-08-\d\d", date) for date in dates["ma_hovy_bilstm_cnn_crf_glove"])
    counted = {system: made.read(f"{cell(system)}/run.json")["coverage"]["words"] for system in SMALL}
    lower = {"lower": 5, "zeros": 0, "convention": 0}
    assert counted["lample_char_bilstm_crf_glove"] == {"unchanged": 3, "none": 5, **lower}
    assert counted["ma_hovy_bilstm_cnn_crf_glove"] == {
        "unchanged": 2, "none": 5 + len(dates["ma_hovy_bilstm_cnn_crf_glove"]), **lower}  # fmt: skip


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("EU NNP I-NP\nrejects VBZ I-VP\n", "line 1: tag=3 does not exist; the line has 3 columns"),
        ("EU NNP I-NP ORG-I\n", "line 1: 'ORG-I' is not a chunk tag"),
        (None, "does not exist; set RETABLE_DATA to the folder of data sets"),
    ],
)
def test_a_damaged_file_is_one_line(made, tmp_path, content, line):
    for split, n in SIZES.items():
        write_entities(tmp_path / f"eng.{split}", n, 0)
    train = tmp_path / "eng.train"
    train.unlink() if content is None else train.write_text(content, encoding="utf-8", newline="")
    files = zip(("train", "validation", "test"), SIZES, strict=True)
    paths = [f"task.sentences.{split}={tmp_path}/eng.{name}" for split, name in files]
    error = made.refuse("finetune", "task=conll2003_ner", "recipe=taggers/ma_hovy_bilstm", *paths)
    assert line in error and str(train) in error
