"""Test the reader of the published files of STS, and the project's own format of scored pairs."""

import shutil
from pathlib import Path

import pytest

from retable.core.errors import UsageError
from retable.corpora import scored_pairs
from retable.corpora.scored_pairs import ScoredPair, ScoredPairs, write_sts

BENCHMARK = "main-news\tMSRpar\t2012test\t0024\t2.500\tOne girl.\tA girl.\tsource one\tsource two\n"
FILES = {
    "sts/STS12-en-test/STS.input.MSRvid.txt": "A man.\tTwo men.\r\nA cat.\tA dog.\r\n",
    "sts/STS12-en-test/STS.gs.MSRvid.txt": "4.400\n\n",
    "sts/STS12-en-test/STS.input.surprise.OnWN.txt": '"to go\tto move "\n',
    "sts/STS12-en-test/STS.gs.surprise.OnWN.txt": "0\n",
    "sts/STS16-en-test/STS2016.input.headlines.txt": "Café\u2028one\tA bird\thttp://a\thttp://b\n",
    "sts/STS16-en-test/STS2016.gs.headlines.txt": "3\n",
    "sts-test.csv": BENCHMARK,
}


@pytest.fixture
def published(tmp_path, monkeypatch) -> Path:
    monkeypatch.setattr(scored_pairs, "PAIRS", {"STS12": 2, "STS16": 1, "STSB": 1})
    for name, text in FILES.items():
        (path := tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    (tmp_path / "out").mkdir()
    return tmp_path


def write(folder: Path) -> dict[str, float]:
    return write_sts(folder / "out", str(folder / "sts"), str(folder / "sts-test.csv"))


def test_pairs_come_back_without_those_that_have_no_score(published):
    assert write(published) == {"STS12/pairs": 2, "STS16/pairs": 1, "STSB/pairs": 1}
    assert ScoredPairs(str(published / "out")).read() == {
        "STS12": [ScoredPair("MSRvid", 4.4, "A man.", "Two men."), ScoredPair("OnWN", 0, '"to go', 'to move "')],
        "STS16": [ScoredPair("headlines", 3, "Café\u2028one", "A bird")],
        "STSB": [ScoredPair("main-news", 2.5, "One girl.", "A girl.")],
    }


@pytest.mark.parametrize(("file", "text", "message"), [
    ("sts/STS12-en-test/STS.gs.MSRvid.txt", "4.4\n", r"gs.MSRvid.txt ends before line 2, but has one line per pair"),
    ("sts/STS12-en-test/STS.gs.MSRvid.txt", "4,4\n\n", r"gs.MSRvid.txt, line 1: '4,4' is not a score; write a number"),
    ("sts/STS12-en-test/STS.gs.MSRvid.txt", "nan\n\n", r"gs.MSRvid.txt, line 1: 'nan' is not a score; write a number"),
    ("sts/STS12-en-test/STS.gs.MSRvid.txt", None, r"gs.MSRvid.txt does not exist; set RETABLE_DATA"),
    ("sts/STS12-en-test/STS.input.MSRvid.txt", "A man.\nA cat.\n", r"line 1: 'A man.' is not a pair; write two"),
    ("sts/STS16-en-test/STS2016.gs.headlines.txt", "\n", r"STS16-en-test has 0 pairs with a score instead of 1; copy"),
    ("sts-test.csv", "main-news\tMSRpar\n", r"sts-test.csv, line 1: 2 columns instead of genre, file, year, id, score"),
])  # fmt: skip
def test_a_mistake_of_the_published_files_has_one_line(file, text, message, published):
    if text is None:
        (published / file).unlink()
    else:
        (published / file).write_text(text)
    with pytest.raises(UsageError, match=message):
        write(published)


def test_a_missing_year_part_or_pair_is_refused(published):
    (published / "sts-test.csv").write_text(BENCHMARK * 2)
    with pytest.raises(UsageError, match=r"sts-test.csv has 2 pairs with a score instead of 1; copy the files again"):
        write(published)
    for path in (published / "sts/STS12-en-test").glob("*surprise*"):
        path.unlink()
    with pytest.raises(UsageError, match=r"STS12-en-test has 1 pairs with a score instead of 2; copy the files again"):
        write(published)
    shutil.rmtree(published / "sts/STS12-en-test")
    with pytest.raises(UsageError, match=r"sts has no folder STS12-en-test; set RETABLE_DATA"):
        write(published)


def test_a_folder_without_sets_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"nowhere has no folder STS12-en-test; set RETABLE_DATA"):
        write_sts(tmp_path, str(tmp_path / "nowhere"), "")


HEADER = "part\tscore\tsentence1\tsentence2\n"


@pytest.mark.parametrize(("text", "message"), [
    ("", r"own.tsv has the columns \[''\]; rename them to \['part'"),
    ("score\ta\tb\n", r"own.tsv has the columns .* rename them to"),
    (HEADER, r"own.tsv has no pairs; write one pair per line below the header"),
    (HEADER + "a\t1\tone\n", r"own.tsv, line 2: 3 columns; write part, score, sentence1, sentence2"),
    (HEADER + "a\tx\tone\tother\n", r"own.tsv, line 2: 'x' is not a score; write a number"),
    (HEADER + "a/b\t1\tone\tother\n", r"own.tsv, line 2: 'a/b' is not the name of a part; write a name without /"),
])  # fmt: skip
def test_a_mistake_of_a_users_file_has_one_line(text, message, tmp_path):
    (tmp_path / "own.tsv").write_text(text)
    with pytest.raises(UsageError, match=message):
        ScoredPairs(str(tmp_path)).read()


def test_a_folder_without_pairs_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"has no sentence pairs \(<set>.tsv\); run python -m pipelines.prepare"):
        ScoredPairs(str(tmp_path))
