"""Both sides of the tagging benchmark use the same sentences, and with the same weights have the same loss."""

import pytest
import torch

from benchmarks import tagging
from benchmarks.tagging import SYSTEMS, chunks, ours, steps, theirs
from retable.data.tagged import pad_tagged

SENTENCES = ["He|B-NP sees|B-VP it|B-NP .|O", "Yes|O", "A|B-NP cat|I-NP"]


@pytest.fixture
def data(tmp_path):
    lines = ["\n".join(word.replace("|", " X ") for word in sentence.split()) for sentence in SENTENCES]
    (tmp_path / "train.txt").write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    return chunks(tmp_path / "train.txt")


@pytest.mark.parametrize("system", SYSTEMS)
def test_with_the_same_weights_both_have_the_same_loss_and_gradients(data, system):
    torch.manual_seed(0)
    mine, other = (make(data, system, 3).module.eval() for make in (ours, theirs))
    weights = other.state_dict()
    layers = {f"model.layers.{way}.0.": end for way, end in (("forth", ""), ("back", "_reverse"))}
    names = {
        "head.": "linear.", "crf.start": "crf.start_transitions", "crf.transition": "crf.transitions",
        "crf.end": "crf.end_transitions", "model.input.embedding.": "embedding.",
        "model.input.cnn.characters.": "characters.", "model.input.cnn.filters.0.": "convolution.",
        "model.embedding.": "embedding.",
    }  # fmt: skip

    def theirs_of(name: str) -> str:
        for start, end in layers.items():
            if name.startswith(start):
                return f"lstm.{name.removeprefix(start)}{end}"
        start = next(start for start in names if name.startswith(start))
        return names[start] + name.removeprefix(start)

    mine.load_state_dict({name: weights[theirs_of(name)] for name in mine.state_dict()})
    batch = pad_tagged(data.examples, range(3))
    losses = mine.loss(batch, None, 0)[0], other(batch.input_ids, batch.tags, batch.lengths)
    torch.testing.assert_close(*losses)
    torch.stack(losses).sum().backward()
    gradients = {name: parameter.grad for name, parameter in other.named_parameters()}
    for name, parameter in mine.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[theirs_of(name)], msg=name)


def test_speed_is_of_words(data):
    trained: list[int] = []
    running = steps(theirs(data, "words", 2), trained)
    next(running), next(running)
    assert len(trained) == 2 and sum(trained) <= 11


def test_without_the_files_sentences_are_drawn(tmp_path, monkeypatch):
    drawn = tagging.drawn
    monkeypatch.setattr(tagging, "drawn", lambda n: drawn(200))
    data = chunks(tmp_path / "nothing")
    lengths = torch.tensor([len(example.words) for example in data.examples]).float()
    assert len(lengths) == 200 and 20 < lengths.mean() < 28 and len(data.tags) == 23
