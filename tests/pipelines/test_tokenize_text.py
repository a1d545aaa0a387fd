"""Test stage tokenize on users' texts: what is refused, what is counted, and what an evaluation makes of it."""

import json
from pathlib import Path

import pytest

import retable
from retable.core.errors import UsageError

LINES = ["the cat sat on the mat", "a <unk> dog sat", "the dog and the cat", "a mat on the dog", "the cat sat"] * 3
NEW = ["the cat saw the <unk> dog", "the dog sat on a sofa", "the cat", "a dog", "the mat"]


def write(folder: Path, train: list[str], test: list[str], **more: object) -> None:
    """Write a corpus of lines and its configuration into the folder."""
    (folder / "mine/corpus").mkdir(parents=True, exist_ok=True)
    for split, lines in (("train", train), ("validation", train[:5]), ("test", test)):
        (folder / f"{split}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    said = {"_target_": "retable.corpora.text.write_corpus", **{s: f"{s}.txt" for s in ("train", "validation", "test")}}
    corpus = {"unit": "line", "write": said | more}
    (folder / "mine/corpus/mine.yaml").write_text(json.dumps(corpus), encoding="utf-8")


MINE = ["--config-dir=mine", "corpus=mine"]
CELLS = ("tokenize/mine/word", "evaluate/mine/kn-1/perplexity")


@pytest.mark.long
@pytest.mark.parametrize(("split", "mark"), [("test", "<eos>"), ("train", "<eos>"), ("train", "<s>")])
def test_marks_of_lines_in_a_text_are_refused_by_file_and_line(bare_project, split, mark):
    texts = {"train": LINES, "test": NEW}
    texts[split] = [*texts[split][:2], f"the cat {mark}", *texts[split][2:]]
    write(bare_project.folder, **texts)
    bare_project.succeed("prepare", *MINE)
    said = bare_project.refuse("tokenize", *MINE, "tokenizer=word")
    assert f"outputs/prepare/mine/{split}.txt, line 3: " in said and f"contains {mark}, which" in said
    bare_project.succeed("tokenize", *MINE, "tokenizer=bpe", "tokenizer.train.vocab_size=300")  # keeps the text whole
    write(bare_project.folder, **texts, strip=[mark])
    bare_project.succeed("prepare", *MINE)
    bare_project.succeed("tokenize", *MINE, "tokenizer=word")


def test_bits_per_byte_are_left_out_where_the_tokens_do_not_determine_the_text(bare_project):
    write(bare_project.folder, LINES, NEW)
    bare_project.succeed("prepare", *MINE)
    done = bare_project.succeed("tokenize", *MINE, "tokenizer=word")
    assert "test: 2 of 23 tokens are unknown to the vocabulary, 1 are <unk> in the text; 10.00% of" in done.stderr
    bare_project.succeed("pretrain", *MINE, "recipe=counted/kn3", "tokenizer=word", "system=kn")
    bare_project.succeed("evaluate", *MINE, "tokenizer=word", "cell=mine/kn-1", "benchmark=perplexity")
    counts, scores = (bare_project.read(f"{cell}/metrics.json") for cell in CELLS)
    size = sum(len(line) + 1 for line in NEW)
    shares = [counts[f"test/{name}"] for name in ("unknown", "unk_in_text", "lost")]
    assert shares == pytest.approx([2 / 23, 1 / 23, len("sawsofa") / size]) and "test/marks" not in counts
    assert scores["test/bytes_lost"] == counts["test/lost"] and "test/bits_per_byte" not in scores
    assert "validation/bits_per_byte" in scores and "validation/bytes_lost" not in scores  # all its words are known

    system = retable.load(bare_project.folder / "outputs/pretrain/mine/kn-1")
    for texts, lost in ((NEW, len("sawsofa") / size), (LINES, None)):
        measured = system.likelihood(texts)
        assert measured.get("bytes_lost") == lost and ("bits_per_byte" in measured) == (lost is None)
    for use in (system.score, system.likelihood, system.continue_):
        with pytest.raises(UsageError, match="'the <eos> cat' contains <eos>, which this tokenizer reserves"):
            use("the <eos> cat")
    assert system.continue_("the <eos> the", max_new_tokens=1, special_tokens=True)
