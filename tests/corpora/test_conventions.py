import pytest

from retable.corpora.conventions import penn_treebank, text8

OWN = "mr. vinken is chairman of elsevier n.v. the dutch publishing group 's unit and has n't said $ a share"
PENN_TREEBANK = {
    "Who can't Mrs. Smith's friends visit?": "who ca n't mrs. smith 's friends visit",
    "The teachers' cars weren't sold, and I cannot go.": "the teachers ' cars were n't sold and i can not go",
    "They’ve said we’re late; I'd leave, he'll stay.": "they 've said we 're late i 'd leave he 'll stay",
    "\"Hello,\" she said: 'no way.'": "hello she said no way",
    "It cost $5,000.50 (10% more) in the '80s.": "it cost $ N N N more in the '80s",
    "J.P. Morgan & Co. rose 3-5 points -- a lot.": "j.p. morgan & co. rose N points a lot",
    "A half-hour in the U.S. won't do.": "a half-hour in the u.s. wo n't do",
    "John is taller than I.": "john is taller than i", "One.\n\nTwo, too!": "one\n\ntwo too", "": "", OWN: OWN,
}  # fmt: skip


def test_penn_treebank():
    assert {text: penn_treebank(text) for text in PENN_TREEBANK} == PENN_TREEBANK


@pytest.mark.real
def test_penn_treebank_on_the_penn_treebank(data_dir):
    lines = (data_dir / "ptb/ptb.valid.txt").read_text(encoding="utf-8").split("\n")[:1000]
    words = [word for line in lines for word in line.replace("<unk>", "unk").split()]
    kept = sum(penn_treebank(word) == word or word in ("N", "$") for word in words)
    assert kept / len(words) > 0.995


def test_text8():
    assert text8("In 1905, Ann's 2nd son\nwas BORN.") == "in one nine zero five ann s two nd son\nwas born"
