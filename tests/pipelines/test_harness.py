"""Test cells as models of lm-evaluation-harness: the numbers are those of our scorer and decoding."""

import json

import numpy as np
import pytest

import retable

lm_eval = pytest.importorskip("lm_eval")


@pytest.fixture(scope="module")
def outputs(cells):
    return cells.folder / "outputs"


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))


@pytest.mark.long
@pytest.mark.parametrize("system", ["kn3", "elman", "gpt"])
def test_a_task_has_the_score_of_our_own(system, outputs, tmp_path):
    from retable.inference.harness import CellLM

    cell = outputs / f"pretrain/grammar_tiny/{system}-1"
    lines = [line for line in (outputs / "prepare/grammar_tiny/test.txt").read_text().split("\n") if line][:30]
    pairs = [(line, " ".join([*line.split()[1:], line.split()[0]])) for line in lines]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps({"good": a, "bad": b}) + "\n" for a, b in pairs))
    task = {
        "task": "own_pairs", "dataset_path": "json", "test_split": "test", "output_type": "multiple_choice",
        "dataset_kwargs": {"data_files": {"test": str(tmp_path / "pairs.jsonl")}},
        "doc_to_text": "", "target_delimiter": "", "doc_to_target": 0, "doc_to_choice": "{{[good, bad]}}",
        "metric_list": [{"metric": "acc"}],
    }  # fmt: skip
    found = lm_eval.simple_evaluate(model=CellLM(str(cell)), tasks=[task], bootstrap_iters=0)
    scored = retable.load(cell).score([text for pair in pairs for text in pair])
    good, bad = np.array([each.log_prob for each in scored]).reshape(-1, 2).T
    assert found["results"]["own_pairs"]["acc,none"] == pytest.approx((good >= bad).mean())


def test_requests_are_answered_by_scorer_and_greedy_decoding(outputs):
    from lm_eval.api.instance import Instance

    from retable.inference.harness import CellLM

    cell = outputs / "pretrain/grammar_tiny/elman-1"
    model, system = CellLM(str(cell)), retable.load(cell)
    word = system.tokenizer.words[25]

    def asked(*arguments):
        return [Instance("loglikelihood", {}, arguments, 0)]

    (text,) = system.continue_(word, max_new_tokens=3)
    (likeliest, is_greedy), (other, is_not) = (
        model.loglikelihood(asked(word, f" {end}"))[0] for end in (text, f"{word} {word} {word}")
    )
    assert is_greedy and not is_not and likeliest == pytest.approx(system.score(f" {text}", context=word)[0].log_prob)
    assert other == pytest.approx(system.score(f" {word} {word} {word}", context=word)[0].log_prob)
    assert model.loglikelihood_rolling(asked(word))[0] == pytest.approx(system.score(word)[0].log_prob)
    ends = ["nowhere in it", text[5:], text[4:6]]
    assert model.generate_until(asked(word, {"until": ends, "max_gen_toks": 3})) == [text[: text.index(text[4:6])]]
    assert model.generate_until(asked(word, {"until": ends[0], "max_gen_toks": 3})) == [text]
