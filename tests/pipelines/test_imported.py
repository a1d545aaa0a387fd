"""Test `retable import`: files made elsewhere, or exported, become cells that stages and `retable.load` use."""

import gzip
import json
import re
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import retable
from pipelines.cli.export import export_cell
from pipelines.cli.import_ import import_cell
from retable.core.artifacts import read_json
from retable.core.errors import UsageError
from retable.corpora.text import read_units
from retable.inference import served
from retable.models.vector_files import write_word2vec
from retable.tokenizers.word import of_words
from tests.evaluation.test_sentence_similarity import pairs_file
from tests.exchange.cases import bpe, exported, gpt, system, widened
from tests.exchange.test_sentence_transformers import (
    DENSE,
    POOLING,
    TEXTS,
    TRANSFORMER,
    encoder,
    headless,
    sentence_files,
)

CORPUS = "corpus=grammar_tiny"


def perplexities(project, cell: str, *overrides: str) -> dict[str, float]:
    project.succeed("evaluate", CORPUS, f"cell=grammar_tiny/{cell}", "benchmark=perplexity", *overrides)
    return project.read(f"evaluate/grammar_tiny/{cell}/metrics.json")


def contents() -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in Path().rglob("*")}


@pytest.fixture(scope="module")
def arpa(project):
    """Return the cell of an n-gram model, its ARPA file, and the cell imported from this file."""
    project.succeed("pretrain", CORPUS, "recipe=counted/kn5", "system=counted")
    project.succeed("cli.main", "export", "pretrain/grammar_tiny/counted-1", "mine.arpa")
    done = project.succeed("cli.main", "import", "mine.arpa", "grammar_tiny/from_arpa")
    assert done.stdout == "outputs/pretrain/grammar_tiny/from_arpa\n"
    return project


def test_an_arpa_file_of_ours_comes_back_and_scores_the_same(arpa):
    test = arpa.folder / "outputs/prepare/grammar_tiny/test.txt"
    texts = ["\n".join(lines) for lines in read_units(test, "document")]
    ours, theirs = (retable.load(arpa.folder / "outputs/pretrain/grammar_tiny" / cell)
                    for cell in ("counted-1", "from_arpa"))  # fmt: skip
    assert theirs.tokenizer.digest == ours.tokenizer.digest and theirs.config["tokens"] == "grammar_tiny/word"
    assert theirs.perplexity(texts) == pytest.approx(ours.perplexity(texts), rel=1e-6)
    for one, other in zip(ours.score(texts[:5]), theirs.score(texts[:5]), strict=True):
        assert other.log_prob == pytest.approx(one.log_prob, abs=1e-4)
    assert perplexities(arpa, "from_arpa") == pytest.approx(perplexities(arpa, "counted-1"), rel=1e-6)


def test_a_cell_says_what_it_was_imported_from(arpa):
    run = arpa.read("pretrain/grammar_tiny/from_arpa/run.json")
    assert run["seed"] is None and run["made_from"] == [] and run["imported"] == "mine.arpa"
    assert list(run["digests"]) == ["mine.arpa"] and len(run["digests"]["mine.arpa"]) == 64
    evaluated = "evaluate/grammar_tiny/from_arpa/run.json"
    perplexities(arpa, "from_arpa")
    assert arpa.read(evaluated)["made_from"][0] == "pretrain/grammar_tiny/from_arpa"
    shown = arpa.succeed("cli.main", "show", "from_arpa").stdout
    assert "from_arpa on grammar_tiny, imported" in shown and "made from  mine.arpa" in shown


ARPA = "\\data\\\nngram 1={n}\n\n\\1-grams:\n-0.5\ta\n-0.5\t</s>\n{more}\n\\end\\\n"


def test_an_arpa_file_of_other_words_is_scored_on_tokens_of_its_own(arpa):
    (arpa.folder / "other.arpa").write_text(ARPA.format(n=3, more="-0.7\t<unk>\n"))
    arpa.succeed("cli.main", "import", "other.arpa", "grammar_tiny/other")
    cell = retable.load(arpa.folder / "outputs/pretrain/grammar_tiny/other")
    assert cell.config["tokens"] == "grammar_tiny/pretrained"
    (scored,) = cell.score("a b", end=True)
    assert scored.log_prob == pytest.approx(-1.7 * np.log(10))
    assert "write corpus=grammar_tiny tokenizer=pretrained" in arpa.refuse(
        "evaluate", CORPUS, "cell=grammar_tiny/other"
    )
    path = "outputs/pretrain/grammar_tiny/from_arpa/tokenizer.json"
    arpa.succeed("tokenize", CORPUS, "tokenizer=pretrained", f"tokenizer.train.path={path}")
    done = arpa.run("evaluate", CORPUS, "cell=grammar_tiny/other", "tokenizer=pretrained")
    command = f"tokenize_text {CORPUS} tokenizer=pretrained tokenizer.train.path=outputs/pretrain/grammar_tiny/other/"
    assert done.returncode == 2 and f"first run python -m pipelines.{command}tokenizer.json" in done.stderr
    arpa.succeed(
        "tokenize", CORPUS, "tokenizer=pretrained", f"tokenizer.train.path={path.replace('from_arpa', 'other')}"
    )
    assert perplexities(arpa, "other", "tokenizer=pretrained")["test/perplexity_word"] > 1


@pytest.mark.parametrize(("n", "more", "message"), [
    (2, "", "odd.arpa lacks <unk> for unknown words, or has both <eos> and </s>; write the file again"),
    (4, "-1\t<unk>\n-1\t<eos>\n", "odd.arpa lacks <unk> for unknown words, or has both <eos> and </s>"),
    (3, "-inf\t<unk>\n", "odd.arpa has a probability of 0, or lacks prefixes of its n-grams; write the file"),
])  # fmt: skip
def test_what_an_arpa_file_lacks_is_said_in_one_line(project, n, more, message):
    (project.folder / "odd.arpa").write_text(ARPA.format(n=n, more=more))
    assert project.refuse("cli.main", "import", "odd.arpa", "grammar_tiny/odd").startswith(f"error: {message}")
    assert not (project.folder / "outputs/pretrain/grammar_tiny/odd").exists()


@pytest.mark.parametrize("positions", [pytest.param("learnt", marks=pytest.mark.long), "rotary"])
def test_a_gpt_exported_and_imported_is_the_same(positions, project):
    goes, comes, place = (f"{name}_{positions}" for name in ("goes", "comes", "as"))
    project.succeed("tokenize", CORPUS, "tokenizer=bpe")
    small = ["model.d_model=16", "model.n_layers=1", "model.n_heads=2", "model.max_length=32", "batches.length=32"]
    small += ["epochs=0.2", f"+model.positions={positions}", f"system={goes}"]
    project.succeed("pretrain", CORPUS, "tokenizer=bpe", "recipe=transformer/gpt", *small)
    project.succeed("cli.main", "export", f"pretrain/grammar_tiny/{goes}-1", place)
    project.succeed("cli.main", "import", place, f"grammar_tiny/{comes}")
    expected = perplexities(project, f"{goes}-1", "tokenizer=bpe")
    assert perplexities(project, comes, "tokenizer=bpe") == pytest.approx(expected, rel=1e-5)
    run = project.read(f"pretrain/grammar_tiny/{comes}/run.json")
    files = {f"{place}/{name}" for name in ("config.json", "model.safetensors", "tokenizer.json")}
    assert files == set(run["digests"])
    cells = project.folder / "outputs/pretrain/grammar_tiny"
    ours, theirs = (retable.load(cells / cell) for cell in (f"{goes}-1", comes))
    assert np.abs(ours.encode("the cat")[0] - theirs.encode("the cat")[0]).max() < 1e-6
    assert theirs.continue_("the", max_new_tokens=4) == ours.continue_("the", max_new_tokens=4)


BY_NIGHT = [pytest.param(name, marks=pytest.mark.long) for name in ("bert, masked alone", "bert, narrow", "t5 1.1")]


@pytest.mark.parametrize("name", ["bert", "bert, rotary", "t5", *BY_NIGHT])
def test_other_checkpoints_are_loaded_and_measured(name, project):
    ours, tokenizer = system(name)
    cell = "".join(letter for letter in name if letter.isalnum())
    exported(ours, tokenizer, project.folder / cell)
    project.succeed("cli.main", "import", cell, f"grammar_tiny/{cell}")
    loaded = retable.load(project.folder / f"outputs/pretrain/grammar_tiny/{cell}")
    weights, again = dict(ours.named_parameters()), dict(loaded.system.objective.named_parameters())
    if name == "bert, rotary":  # it returns with an untied softmax, and embeddings of single texts
        ids = torch.tensor([[2, *tokenizer.encode("the cat sees"), 3]])
        its = [each.head.decoder(each.head(each.model(ids))) for each in (ours, loaded.system.objective)]
        assert (its[0] - its[1]).abs().max() < 1e-5
    else:
        assert weights.keys() == again.keys() and all((weights[key] == again[key]).all() for key in weights)
    assert loaded.encode("the cat")[0].shape[-1] == 16
    path = f"outputs/pretrain/grammar_tiny/{cell}/tokenizer.json"
    project.succeed("tokenize", CORPUS, "tokenizer=pretrained", f"tokenizer.train.path={path}")
    project.succeed("evaluate", CORPUS, "tokenizer=pretrained", f"cell=grammar_tiny/{cell}", "benchmark=held_out")
    assert project.read(f"evaluate/grammar_tiny/{cell}/metrics.json")["held_out/loss"] > 0


def test_a_checkpoint_without_its_whole_pretraining_is_refused(project):
    objective, tokenizer = system("electra")
    exported(objective, tokenizer, project.folder / "judge")
    message = "judge lacks the pretraining head of a BERT, which a cell needs; train from the checkpoint instead, with "
    assert project.refuse("cli.main", "import", "judge", "grammar_tiny/judge") == f"error: {message}init=hf:judge"
    alone = exported(widened(gpt(bpe().vocab_size)).model, bpe(), project.folder / "alone")
    assert alone.is_dir() and project.refuse("cli.main", "import", "nowhere", "grammar_tiny/nowhere").startswith(
        "error: nowhere is not a fol"
    )


@pytest.fixture(scope="module")
def minilm(project):
    """Return a project with the checkpoint of a random sentence encoder, and with scored pairs."""
    folder = project.folder / "minilm"
    headless(folder)
    sentence_files(folder, "mean_tokens", max_seq_length=8)
    (project.folder / "pairs").mkdir()
    rows = [("a", i, text, TEXTS[i - 1]) for i, text in enumerate(TEXTS)]
    pairs_file(project.folder / "pairs/own.tsv", rows)
    return project


PAIRS = ("corpus=sts", "benchmark=sentence_similarity", "benchmark.sentence_similarity.pairs.folder=pairs")


def test_a_sentence_encoder_is_imported_with_its_pooling(minilm):
    minilm.succeed("cli.main", "import", "minilm", "sts/of_files")
    minilm.succeed("cli.main", "import", "hf:minilm", "sts/hf")
    cells = minilm.folder / "outputs/pretrain/sts"
    loaded = retable.load(cells / "of_files")
    np.testing.assert_allclose(loaded.encode(TEXTS), encoder(minilm.folder / "minilm").encode(TEXTS), atol=1e-6)
    one, other = loaded.encode(TEXTS[:2])
    assert loaded.similarity(*TEXTS[:2]) == pytest.approx(one @ other, abs=1e-6)
    assert loaded.encode(TEXTS[0]).shape == (1, 16) and loaded.can == ("encode", "similarity")
    assert len(minilm.read("pretrain/sts/of_files/run.json")["digests"]) == 6
    examples = served.examples(loaded)  # MLflow's model of the cell
    assert np.allclose([*served.answers(loaded, examples)["vector"]], loaded.encode([*examples["text"]]), atol=1e-6)
    minilm.succeed("evaluate", *PAIRS, "cell=sts/of_files")
    metrics = minilm.read("evaluate/sts/of_files/metrics.json")
    assert metrics["sentence_similarity/own/pairs"] == 5 and "sentence_similarity/own/spearman" in metrics
    assert "of_files is not a LanguageModel, which benchmark perplexity needs" in minilm.refuse(
        "evaluate", "corpus=sts", "cell=sts/of_files"
    )
    assert "of_files is a sentence encoder, and sentence encoders are not exported" in minilm.refuse(
        "cli.main", "export", "sts/of_files", "again"
    )
    for setting in ("precision=bf16-mixed", "devices=2"):
        line = minilm.refuse("evaluate", *PAIRS, "cell=sts/of_files", "trainer=cpu", f"trainer.{setting}")
        assert f"trainer.{setting} has no effect on a sentence encoder; write trainer." in line, line


def test_another_pooling_or_tokenizer_under_one_name_is_measured_again(minilm):
    folder, found = minilm.folder / "minilm_again", []
    shutil.copytree(minilm.folder / "minilm", folder)
    for mode, text in (("mean_tokens", ""), ("max_tokens", ""), ("max_tokens", "cat")):
        sentence_files(folder, mode, max_seq_length=8)
        if text:  # the word gets the id of another word
            tokenizer = folder / "tokenizer.json"
            content = json.loads(tokenizer.read_text())
            vocabulary = content["model"]["vocab"]
            vocabulary["cat"], vocabulary["bird"] = vocabulary["bird"], vocabulary["cat"]
            tokenizer.write_text(json.dumps(content))
        minilm.succeed("cli.main", "import", "minilm_again", "sts/again")
        minilm.succeed("evaluate", *PAIRS, "cell=sts/again")
        found.append(minilm.read("evaluate/sts/again/metrics.json")["sentence_similarity/own/pearson"])
        shutil.rmtree(minilm.folder / "outputs/pretrain/sts/again")
    assert len({*found}) == 3


def test_a_headed_bert_with_other_modules_is_imported_with_its_head(project):
    folder = exported(*system("bert"), project.folder / "headed")
    sentence_files(folder, modules=[TRANSFORMER, POOLING, DENSE])
    project.succeed("cli.main", "import", "headed", "grammar_tiny/headed")
    cell = retable.load(project.folder / "outputs/pretrain/grammar_tiny/headed")
    assert "encoder" not in cell.config and cell.config["objective"]["_target_"].endswith("MaskedLM")


def test_an_encoder_whose_tokenizer_lacks_marks_leaves_no_cell(project):
    headless(project.folder / "unmarked")
    of_words(["<unk>", "<eos>", "a"]).save(project.folder / "unmarked/tokenizer.json")
    line = project.refuse("cli.main", "import", "unmarked", "sts/unmarked")
    assert "the tokenizer of the sentence encoder has no mark [CLS]" in line, line
    assert not (project.folder / "outputs/pretrain/sts/unmarked").exists()


def test_a_stage_makes_the_cell_that_an_import_makes(minilm):
    recipe = ("corpus=sts", "recipe=encoders/sentence_encoder", "init=hf:minilm")
    minilm.succeed("pretrain", *recipe, "system=staged")
    minilm.succeed("pretrain", *recipe, "system=first", "encoder.pooling=first")
    cells = minilm.folder / "outputs/pretrain/sts"
    staged, first = (retable.load(cells / name) for name in ("staged-1", "first-1"))
    np.testing.assert_array_equal(staged.encode(TEXTS), encoder(minilm.folder / "minilm").encode(TEXTS))
    made, imported = (minilm.read(f"pretrain/sts/{name}/run.json")["digests"] for name in ("staged-1", "hf"))
    assert made == {name.removeprefix("hf:"): value for name, value in imported.items()}
    assert first.config["encoder"]["pooling"] == "first" and first.config["encoder"]["max_length"] == 8
    assert staged.config["tokens"] is None and "tokenizer" not in staged.config
    assert np.abs(staged.encode(TEXTS) - first.encode(TEXTS)).max() > 0.1
    minilm.succeed("evaluate", *PAIRS, "cell=sts/staged-1")
    for overrides, message in (
        (
            recipe[:2],
            "init=random, but a sentence encoder is not trained here; write a checkpoint, as in init=",
        ),
        ((*recipe, "encoder.max_length=13"), "encoder.max_length=13 is out of range; write 3 to 12"),
        ((*recipe, "encoder.max_length=2"), "encoder.max_length=2 is out of range; write 3 to 12"),
        ((*recipe, "encoder.pooling=sum"), "encoder.pooling=sum"),
        ((*recipe, "encoder=null"), "encoder=null removes the sentence encoder of the recipe; leave encoder out"),
        ((*recipe, "tokenizer=bpe"), "tokenizer has no effect on this recipe, a sentence encoder"),
        (
            (CORPUS, "recipe=transformer/gpt", "+encoder.pooling=mean"),
            "encoder has no effect on this recipe, which is not a sentence encoder; leave encoder out, or write",
        ),
        (
            (*recipe, "compile=true"),
            "compile has no effect on this recipe, a sentence encoder that is not trained here",
        ),
    ):
        line = minilm.refuse("pretrain", *overrides, "system=refused")
        assert message in line, line
    assert not (cells / "refused-1").exists()


VECTORS = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)
WORDS = ["the", "cat", "nai\u0308ve\u00a0\U0001f642", "</s>"]


@pytest.mark.parametrize("form", [pytest.param("txt", marks=pytest.mark.long), "bin"])
def test_word_vectors_come_go_and_begin_a_training(form, project, monkeypatch):
    """gensim writes the vectors and reads ours; in binary formats they are equal in every bit."""
    keyed_vectors = pytest.importorskip("gensim.models").KeyedVectors
    theirs = keyed_vectors(5)
    theirs.add_vectors(WORDS, VECTORS)
    theirs.save_word2vec_format(str(project.folder / f"given.{form}"), binary=form == "bin")
    project.succeed("cli.main", "import", f"given.{form}", f"grammar_tiny/of_{form}")
    monkeypatch.chdir(project.folder)
    system = retable.load(f"of_{form}")
    assert system.words == WORDS
    np.testing.assert_allclose(system.vectors(WORDS), VECTORS, rtol=0 if form == "bin" else 1e-6)
    assert system.neighbours("the", 1)[0][0] in WORDS[1:]
    for end in ("txt", "bin"):
        project.succeed("cli.main", "export", f"embed/grammar_tiny/of_{form}", f"back.{end}")
        again = keyed_vectors.load_word2vec_format(f"back.{end}", binary=end == "bin")
        assert again.index_to_key == WORDS and np.array_equal(again.vectors, system.vectors(WORDS))
    project.succeed("evaluate", CORPUS, "stage=embed", f"cell=grammar_tiny/of_{form}", "benchmark=neighbours")
    its = f"embedding=outputs/embed/grammar_tiny/of_{form}/vectors.bin"
    project.succeed("finetune", "task=sentiment", CORPUS, "recipe=encoders/deep_averaging", "model.d_model=5", its,
                           "epochs=1", f"out=grammar_tiny/on_{form}")  # fmt: skip
    run = project.read(f"finetune/grammar_tiny/on_{form}/run.json")
    assert f"embed/grammar_tiny/of_{form}" in run["made_from"]
    assert 0 < run["coverage"]["types"]["test"] <= 1 and run["coverage"]["words"]["unchanged"] == 1


def test_a_language_model_counts_the_words_with_a_vector(project):
    """The file has a vector for the unknown word, but unknown words have no vectors."""
    write_word2vec(project.folder / "few.bin", ["the", "<unk>"], np.eye(2, 5, dtype=np.float32))
    settings = ["recipe=recurrent/elman", "model.d_model=5", "embedding=few.bin", "system=few", "+max_steps=1"]
    project.succeed("pretrain", CORPUS, *settings)
    counted = project.read("pretrain/grammar_tiny/few-1/run.json")["coverage"]
    for split in ("train", "validation"):
        lines = (project.folder / f"outputs/prepare/grammar_tiny/{split}.txt").read_text().split("\n")
        words = [word for line in lines for word in line.split()]
        assert counted["tokens"][split] == pytest.approx(words.count("the") / (len(words) + len(lines) - 1))
    assert counted["words"]["unchanged"] == 1


@pytest.mark.parametrize("form", ["txt", "bin"])
@pytest.mark.parametrize("task", ["sentiment", "conll2000_chunking"])
def test_word_vectors_may_be_of_a_task(form, task, project, monkeypatch):
    write_word2vec(project.folder / f"task.{form}", WORDS, VECTORS)
    done = project.succeed("cli.main", "import", f"task.{form}", f"{task}/of_{form}")
    assert done.stdout == f"outputs/embed/{task}/of_{form}\n"
    monkeypatch.chdir(project.folder)
    np.testing.assert_allclose(retable.load(f"embed/{task}/of_{form}").vectors(WORDS), VECTORS, rtol=1e-6)
    assert f"of_{form} on {task}, imported" in project.succeed("cli.main", "show", f"embed/{task}/of_{form}").stdout
    project.succeed("evaluate", "stage=embed", f"cell={task}/of_{form}", "benchmark=neighbours")
    if task == "sentiment" and form == "txt":
        its = f"embedding=outputs/embed/{task}/of_{form}/vectors.bin"
        project.succeed("finetune", f"task={task}", CORPUS, "recipe=encoders/deep_averaging", "model.d_model=5", its,
                        "epochs=1", "out=grammar_tiny/on_task")  # fmt: skip
        assert f"embed/{task}/of_{form}" in project.read("finetune/grammar_tiny/on_task/run.json")["made_from"]


@pytest.mark.parametrize("name", ["own/v", "own_task/v"])
def test_word_vectors_may_be_of_a_corpus_or_task_of_the_studys_own(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("study.yaml").touch()
    for group, content in (("corpus", "unit: line"), ("task", "# @package _global_\ntask: {}")):
        (folder := Path("conf", group)).mkdir(parents=True)
        (folder / f"own{'_task' * (group == 'task')}.yaml").write_text(f"{content}\n", encoding="utf-8")
    write_word2vec(Path("v.txt"), WORDS, VECTORS)
    np.testing.assert_allclose(retable.load(import_cell("v.txt", name)).vectors(WORDS), VECTORS, rtol=1e-6)


PUBLISHED = {"wiki.vec": "1 2\nthe 1 2\n", "glove.txt": "the 1 2\n"}


def write_packed(text: str, name: str) -> list[str]:
    """Write a file in the working folder as it is, as gzip, and into an archive; return the paths to import."""
    Path(name).write_text(text, encoding="utf-8")
    Path(f"{name}.gz").write_bytes(gzip.compress(text.encode()))
    with zipfile.ZipFile("packed.zip", "w") as archive:
        archive.writestr(name, text)
        archive.writestr("README.md", "")
    return [name, f"{name}.gz", f"packed.zip/{name}"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("study.yaml").touch()


@pytest.mark.parametrize("name", PUBLISHED)
def test_word_vectors_are_imported_as_they_are_published(name, folder):
    for number, path in enumerate(write_packed(PUBLISHED[name], name)):
        cell = import_cell(path, f"grammar_tiny/v{number}")
        assert retable.load(cell).vectors("the").tolist() == retable.load(path).vectors("the").tolist() == [[1, 2]]
        archive = "packed.zip" if path.startswith("packed") else path
        assert [*read_json(cell / "run.json")["digests"]] == [archive]


@pytest.mark.parametrize("name", ["lm.arpa", "LM.ARPA", "3gram.lm"])
def test_compressed_arpa_files_are_imported(name, folder):
    paths = write_packed(ARPA.format(n=3, more="-0.7\t<unk>\n"), name)
    with zipfile.ZipFile("alone.zip", "w") as archive:
        archive.write(name)
    for number, path in enumerate([*paths, "alone.zip"]):
        cell = import_cell(path, f"grammar_tiny/lm{number}")
        assert retable.load(cell).score("a b", end=True)[0].log_prob == pytest.approx(-1.7 * np.log(10))


@pytest.mark.parametrize(("file", "message"), [
    ("nowhere.vec", "nowhere.vec does not exist; write the path of a file of word vectors"),
    ("nowhere.arpa.gz", "nowhere.arpa.gz does not exist; give an ARPA file"),
    ("list.json", r"list.json: the first line must be .*; word vectors end in .txt, .vec or .bin, or in .gz or .zip"),
    ("rows.csv.gz", r"rows.csv.gz: the first line must be .*; word vectors end in"),
    ("packed.zip", r"packed.zip has 2 files; write one of packed.zip/list.json, packed.zip/README.md"),
    ("packed.zip/a.vec", r"packed.zip has no file 'a.vec'; write one of list.json, README.md"),
    ("model/model.safetensors", "has the weights of a checkpoint; write the folder of the checkpoint: model$"),
    ("model/pytorch_model.bin", "has the weights of a checkpoint; write the folder of the checkpoint: model$"),
])  # fmt: skip
def test_files_that_are_no_models_are_named(file, message, folder):
    write_packed("a,b\n", "rows.csv")
    write_packed("[]", "list.json")
    Path("model").mkdir()
    for name in ("model.safetensors", "pytorch_model.bin"):  # torch writes ZIP archives
        Path("model", name).write_bytes(Path("packed.zip").read_bytes())
    with pytest.raises(UsageError, match=message):
        import_cell(file, "grammar_tiny/x")
    assert not Path("outputs").exists() or not [*Path("outputs").rglob("run.json")]


@pytest.mark.parametrize(("file", "name", "message"), [
    ("a.txt", "conll/x", "unknown corpus or task 'conll'; write conll2000_chunking or conll2000_np or conll2"),
    ("a.bin", "sentimnt/x", "unknown corpus or task 'sentimnt'; write sentiment"),
    ("a.txt", "grammr/x", "unknown corpus 'grammr'; write grammar"),
    ("a.arpa", "sentiment/x", "unknown corpus 'sentiment' (sentiment is a task); "),
])  # fmt: skip
def test_a_name_of_no_corpus_is_answered_with_the_nearest(file, name, message, project):
    line = project.refuse("cli.main", "import", file, name)
    assert line.startswith(f"error: retable import {file} {name}: {message}"), line


@pytest.mark.parametrize("place, message", [
    ("", "exists; write the name of a new or an empty folder"),
    ("full", "exists; write the name of a new or an empty folder"), ("mine.arpa/x", "does not exist; make it"),
    ("folder.arpa", "is a folder; write the name of a file"), ("nowhere/x.arpa", "does not exist; make it"),
    ("outputs/pretrain/grammar_tiny/counted-1", "is in the cell"),
    ("outputs/pretrain/grammar_tiny/counted-1/x.arpa", "is in the cell"),
])  # fmt: skip
def test_an_export_takes_no_place_that_others_have(place, message, arpa, monkeypatch):
    monkeypatch.chdir(arpa.folder)
    for folder in ("full/of", "folder.arpa"):
        Path(folder).mkdir(parents=True, exist_ok=True)
    before = contents()
    with pytest.raises(UsageError, match=re.escape(message)):
        export_cell("pretrain/grammar_tiny/counted-1", Path(place), "mit")
    assert contents() == before


@pytest.mark.parametrize("place", ["/proc/x.arpa", "/proc/1/x.arpa", "/dev/null/x.arpa"])
def test_an_export_to_a_place_that_takes_no_file_has_one_line(place, arpa):
    line = arpa.refuse("cli.main", "export", "pretrain/grammar_tiny/counted-1", place)
    assert re.search(r"(cannot be created|does not exist); (make it, or )?write another path", line), line


def test_an_export_that_fails_leaves_the_file_as_it_was(arpa, monkeypatch):
    monkeypatch.chdir(arpa.folder)
    Path("old.arpa").write_text("old")

    def fail(_, __, file: Path) -> None:
        file.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("retable.models.arpa.write_arpa", fail)
    with pytest.raises(OSError, match="No space"):
        export_cell("pretrain/grammar_tiny/counted-1", Path("old.arpa"), "mit")
    assert Path("old.arpa").read_text() == "old" and not [*Path().glob(".old.arpa*")]


def test_vectors_of_a_language_model_are_not_there(arpa):
    assert "counted-1 has no word vectors to write to a .txt file" in arpa.refuse(
        "cli.main", "export", "pretrain/grammar_tiny/counted-1", "mine.txt"
    )


def test_what_is_there_is_not_overwritten_and_a_name_has_a_corpus(arpa):
    before = (arpa.folder / "outputs/pretrain/grammar_tiny/from_arpa/run.json").read_bytes()
    assert arpa.refuse("cli.main", "import", "mine.arpa", "grammar_tiny/from_arpa") == (
        "error: outputs/pretrain/grammar_tiny/from_arpa exists; write another name, or first remove "
        "it: rm -r outputs/pretrain/grammar_tiny/from_arpa"
    )
    assert (arpa.folder / "outputs/pretrain/grammar_tiny/from_arpa/run.json").read_bytes() == before
    assert "mine is not a cell's name; write a corpus and a name, as in grammar/mine" in arpa.refuse(
        "cli.main", "import", "mine.arpa", "mine"
    )
