from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from retable.core.errors import UsageError
from retable.evaluation.prompting import Prompted
from retable.evaluation.scoring import Scorer
from retable.models.ngram import KneserNey
from retable.tokenizers import word
from retable.tokenizers.tokenizer import Tokenizer

TEXT = ["good film : great", "good play : great", "bad film : poor", "bad play : really poor", "film play"]


class Question(NamedTuple):
    fields: dict[str, str]
    choices: tuple[str, ...]
    answer: int


class Questions:
    def __init__(self, name, *questions):
        self.inputs, self.questions = [Path(name)], questions

    def read(self):
        return self.questions


QUESTIONS = Questions(
    "asked",
    Question({"text": "good film"}, ("great", "poor"), 0),
    Question({"text": "bad film"}, ("great", "poor"), 1),
    Question({"text": "bad play"}, ("really poor", "poor", "great"), 0),
    Question({"text": "good play"}, ("great", "great film play"), 1),
    Question({"text": "film"}, ("poor", "really poor"), 1),
)
POOL = Questions("pool", *(Question({"text": f"t{i}"}, ("no", "yes"), i % 2) for i in range(7)))


@pytest.fixture
def tokens(tmp_path):
    word.train(TEXT).save(tmp_path / "tokenizer.json")
    return str(tmp_path)


@pytest.fixture
def model(tokens):
    tokenizer = Tokenizer.load(Path(tokens, "tokenizer.json"))
    model = KneserNey(tokenizer.vocab_size, 4, tokenizer.boundary)
    model.estimate(np.concatenate([ids for ids, _, _ in tokenizer.encode_units([[line] for line in TEXT], False)]))
    return model


def predictions(folder):
    return pd.read_csv(f"{folder}/units.csv", dtype=str, keep_default_na=False)[["label", "prediction"]].values.tolist()


def test_choices_by_likelihood_raw_and_normalised(tokens, model):
    benchmark = Prompted("reviews", tokens, QUESTIONS, "{text} :")
    metrics = benchmark(model, Path(tokens))
    tokenizer = Tokenizer.load(benchmark.inputs[0])
    chosen = {"": [], "_tokens": [], "_bytes": []}
    for question in QUESTIONS.read():
        before = tokenizer.encode(f"{question.fields['text']} :")
        scores = {way: [] for way in chosen}
        for choice in question.choices:
            answer = tokenizer.encode(choice)
            total = model.log_prob(np.array(before + answer))[len(before) :].sum()
            scores[""].append(total)
            scores["_tokens"].append(total / len(answer))
            scores["_bytes"].append(total / len(choice.encode()))
        for way, values in scores.items():
            chosen[way].append(int(np.argmax(values)))
    answers = [question.answer for question in QUESTIONS.read()]
    for way, found in chosen.items():
        assert metrics[f"prompted_reviews_0/validation/accuracy{way}"] == np.mean(np.equal(found, answers))
    assert metrics["prompted_reviews_0/validation/questions"] == 5
    assert predictions(tokens) == [[str(a), str(b)] for a, b in zip(answers, chosen[""], strict=True)]
    assert chosen[""] != chosen["_bytes"] != chosen["_tokens"]


def test_choices_by_generation(tokens, model):
    """The answer is the longest choice that begins the greedy continuation; without one there is no answer."""
    questions = Questions(
        "asked",
        Question({"text": "good film"}, ("poor", "great"), 1),
        Question({"text": "bad play"}, ("really", "really poor", "great"), 1),
        Question({"text": "bad play"}, ("really film", "poor"), 1),
    )
    scorer = Scorer(model, Tokenizer.load(Path(tokens, "tokenizer.json")))
    written = scorer.continue_greedily(scorer.encode(["good film :", "bad play :"], ["", ""])[0], 2)
    assert [text.split()[:2] for text in scorer.decode(written)] == [["great", "<eos>"], ["really", "poor"]]
    metrics = Prompted("reviews", tokens, questions, "{text} :", by="generation")(model, Path(tokens))
    assert metrics == {
        "prompted_reviews_0_generated/validation/accuracy": pytest.approx(2 / 3),
        "prompted_reviews_0_generated/validation/questions": 3,
    }
    assert predictions(tokens) == [["1", "1"], ["1", "1"], ["1", ""]]


def test_prompts_show_examples_with_their_answers(tokens):
    def prompts(shots, seed=1, **settings):
        given = {"examples": POOL, "seed": seed, "description": "Is it?", "separator": "\n"} | settings
        return Prompted("x", tokens, QUESTIONS, "Q: {text}\nA:", shots=shots, **given).prompts(QUESTIONS.read())

    assert prompts(0)[0] == "Is it?\nQ: good film\nA:" and prompts(0, description="")[0] == "Q: good film\nA:"
    (one,) = {prompt.split("Q: ")[0] for prompt in prompts(1)}
    assert one == "Is it?\n"
    answers = {f"t{i}": ("no", "yes")[i % 2] for i in range(7)}
    for prompt, question in zip(prompts(3), QUESTIONS.read(), strict=True):
        head, *shown, asked = prompt.split("\nQ: ")
        assert head == "Is it?" and asked == f"{question.fields['text']}\nA:" and len(set(shown)) == 3
        for example in shown:
            text, answer = example.split("\nA: ")
            assert answers[text] == answer
    assert prompts(3) == prompts(3) != prompts(3, seed=2)  # only the seed determines them
    for shots, read in ((0, ["tokenizer.json", "asked"]), (1, ["tokenizer.json", "asked", "pool"])):
        assert [path.name for path in Prompted("x", tokens, QUESTIONS, "", shots=shots, examples=POOL).inputs] == read
    assert len({prompt.rpartition("\nQ: ")[0] for prompt in prompts(3)}) > 1  # other examples for each question


def test_examples_are_drawn_evenly(tokens):
    """Chi-squared of how often each of seven is drawn, two for each of 700 questions, is below its 99.9 % quantile."""
    asked = [Question({"text": "x"}, ("a",), 0)] * 700
    prompts = Prompted("x", tokens, QUESTIONS, "{text}", shots=2, examples=POOL).prompts(asked)
    counts = np.array([sum(f"t{i} " in prompt for prompt in prompts) for i in range(7)])
    assert counts.sum() == 1400 and ((counts - 200) ** 2 / 200).sum() < 22.5


@pytest.mark.parametrize(("settings", "said"), [
    ({"by": "chance"}, "by=chance is unknown; write by=likelihood or by=generation"),
    ({"shots": 2}, "shots=2 needs examples"),
    ({"shots": 8, "examples": POOL}, "pool has 7 examples; write shots=7 or fewer"),
    ({"template": "{sentence}"}, r"the template needs the field 'sentence', but questions in asked have \{text\}"),
    ({"questions": Questions("asked")}, "asked has no questions; write one question per row"),
])  # fmt: skip
def test_mistakes_of_use(tokens, model, settings, said):
    with pytest.raises(UsageError, match=said):
        Prompted("x", tokens, **{"questions": QUESTIONS, "template": "{text}"} | settings)(model, Path(tokens))


def test_answers_that_the_vocabulary_lacks_are_named(tokens, model, capsys):
    asked = Questions(
        "asked",
        Question({"text": "good film"}, ("great", "terrible"), 0),
        Question({"text": "bad film"}, ("superb", "terrible"), 1),
    )
    told = "the model's vocabulary lacks 'terrible', 'superb', so each question of asked has an answer of"
    with pytest.raises(UsageError, match=told):
        Prompted("x", tokens, asked, "{text} :")(model, Path(tokens))
    known = Questions("asked", *asked.questions, QUESTIONS.questions[0])  # only one can be answered
    Prompted("x", tokens, known, "{text} :")(model, Path(tokens))
    assert len(predictions(tokens)) == 3
    assert capsys.readouterr().err == (
        "prompted_x_0: the model's vocabulary lacks 'terrible', 'superb', or a word of it, for 2 of 3 questions\n"
    )
    Prompted("x", tokens, QUESTIONS, "{text} :")(model, Path(tokens))
    assert not capsys.readouterr().err
    many = Questions("asked", Question({"text": "film"}, tuple(f"w{i}" for i in range(7)), 0))
    with pytest.raises(UsageError, match="lacks 'w0', 'w1', 'w2', 'w3', 'w4' and 2 more, so each"):
        Prompted("x", tokens, many, "{text} :")(model, Path(tokens))
