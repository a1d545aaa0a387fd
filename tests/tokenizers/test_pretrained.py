"""Test files in the formats of published models, written by Hugging Face's library, instead of a trained tokenizer."""

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, processors, trainers
from tokenizers.implementations import BertWordPieceTokenizer, ByteLevelBPETokenizer, SentencePieceUnigramTokenizer

from retable.core.errors import UsageError
from retable.data.encode import write_tokens
from retable.tokenizers import pretrained
from retable.tokenizers.tokenizer import read_tokens

LINES = [
    "The unaffable cats, unable to sit, sat on the mats.",
    "She sells sea shells; the shells that she sells are unsellable!",
    "It's 1066 or 1815: they'll never know the café.",
]


def gpt2():
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(LINES, vocab_size=300, special_tokens=["<|endoftext|>"], show_progress=False)
    return tokenizer


def bert():
    tokenizer = BertWordPieceTokenizer()
    tokenizer.train_from_iterator(LINES, vocab_size=120, show_progress=False)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def t5():
    tokenizer = SentencePieceUnigramTokenizer()
    special = ["<pad>", "</s>", "<unk>"]
    tokenizer.train_from_iterator(LINES, 90, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.add_special_tokens([f"<extra_id_{i}>" for i in range(99, -1, -1)])
    return tokenizer


def llama():
    learner = tokenizers.Tokenizer(models.BPE())
    learner.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=340, special_tokens=special, max_token_length=8, show_progress=False)
    learner.train_from_iterator(LINES, trainer)
    model = learner.model
    model.byte_fallback, model.fuse_unk, model.unk_token = True, True, "<unk>"
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = learner.normalizer
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


SHAPES = {
    make.__name__: (make(), boundary)
    for make, boundary in [(gpt2, "<|endoftext|>"), (bert, "[SEP]"), (t5, "</s>"), (llama, "</s>")]
}
EXACT = ("gpt2", "llama")


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretrained")
    by_name = {}
    for name, (peer, _) in SHAPES.items():
        peer.save(str(folder / f"{name}.json"))
        by_name[name] = pretrained.load([], str(folder / f"{name}.json"), vocabulary=["unread"])
    return by_name


@pytest.mark.parametrize("name", SHAPES)
@given(text=st.text())
@example(text="Unaffable shells\r\n☃ e\u0301 👩‍🚀\0 </s>[SEP]<|endoftext|>")
def test_codes_are_those_of_the_library(loaded, name, text):
    peer, _ = SHAPES[name]
    ids = loaded[name].encode(text, special=True)
    assert ids == peer.encode(text, add_special_tokens=False).ids
    assert loaded[name].decode(ids) == peer.decode(ids, skip_special_tokens=False)
    if name in EXACT:
        assert loaded[name].decode(loaded[name].encode(text)) == text
    if not any(mark in text for mark in loaded[name].special_ids):
        assert loaded[name].encode(text) == ids


@pytest.mark.parametrize("name", SHAPES)
def test_streams_begin_and_end_with_the_mark_of_the_model(loaded, name, tmp_path):
    tokenizer, (_, boundary) = loaded[name], SHAPES[name]
    assert tokenizer.words[tokenizer.boundary] == boundary
    assert boundary in tokenizer.special_ids
    write_tokens(tokenizer, [["The cats", "sat"], ["shells"]], documents=True, path=tmp_path / "train")
    stream = read_tokens(tmp_path / "train.bin", tokenizer.vocab_size)
    units = np.load(tmp_path / "train.units.npy")
    assert units[:, 1:3].tolist() == [[6, 14], [3, 8]]
    assert stream[-1] == stream[units[0, 0] - 1] == tokenizer.boundary


def test_what_is_no_usable_file_is_refused(tmp_path):
    (tmp_path / "empty.json").write_text("{}")
    for name, ids in {"markless": {"a": 0}, "gaps": {"a": 0, "b": 2}}.items():
        tokenizers.Tokenizer(models.WordLevel(ids, unk_token="a")).save(str(tmp_path / f"{name}.json"))
    for path, message in {
        None: "path=None does not exist; write tokenizer.train.path=FOLDER/tokenizer.json",
        "nowhere.json": "nowhere.json does not exist",
        "empty.json": "empty.json cannot be read",
        "gaps.json": "the token ids must be 0 to 1 without gaps; repair the vocabulary",
        "markless.json": r"has no mark to begin a stream with; add one of <\|endoftext\|>",
    }.items():
        with pytest.raises(UsageError, match=message):
            pretrained.load([], path and str(tmp_path / path))


def test_a_checkpoint_of_before_tokenizer_json_reads_as_its_library_did(loaded, tmp_path):
    for name, text in {
        "gpt2": "She sat  on it.<|endoftext|>\nUnable",
        "bert": "The CATS, unaffable café [SEP] ☃",
    }.items():
        peer, _ = SHAPES[name]
        (folder := tmp_path / name).mkdir()
        peer.save_model(str(folder))  # writes vocab.json and merges.txt, or vocab.txt
        assert not (folder / "tokenizer.json").exists()
        tokenizer = pretrained.load([], str(folder))
        assert tokenizer.encode(text) == loaded[name].encode(text)
        assert tokenizer.encode(text, special=True) == loaded[name].encode(text, special=True) != tokenizer.encode(text)
        assert tokenizer.boundary == loaded[name].boundary and tokenizer.vocab_size == loaded[name].vocab_size
    (tmp_path / "bert/tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert pretrained.load([], str(tmp_path / "bert")).encode("the T") != loaded["bert"].encode("the T")


def test_texts_are_neither_cut_off_nor_filled_up(loaded, tmp_path):
    loaded["gpt2"].save(tmp_path / "tokenizer.json")
    its = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    its.enable_truncation(3)
    its.enable_padding(length=9)
    its.save(str(tmp_path / "tokenizer.json"))
    tokenizer = pretrained.load([], str(tmp_path))
    assert tokenizer.encode_batch(["She sells shells", "a"]) == loaded["gpt2"].encode_batch(["She sells shells", "a"])
    assert tokenizer.digest == loaded["gpt2"].digest
