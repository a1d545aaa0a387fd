import json

from retable.reporting.results import read_result
from retable.reporting.samples import samples_tables

PROMPTS = ["the old", "a | b", "", "it never shows"]


def write(write_run, corpus: str, system: str, seed: int, strategy: str, ending: str = "man"):
    folder = write_run("generate", f"{corpus}/{system}-{seed}-{strategy}", system, seed, {"mean_length": 2})
    rows = [
        {"prompt": prompt, "text": f"{ending} {place}", "log_prob": -1.5, "tokens": 2, "strategy": strategy}
        for prompt in PROMPTS
        for place in ("first", "second")
    ]
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "samples.jsonl").write_text(text, encoding="utf-8")
    return read_result(folder)


def test_continuations_of_a_beginning_stand_side_by_side(write_run):
    results = [
        write(write_run, "ptb", "lstm", 2, "beam", "never shown"),
        write(write_run, "ptb", "lstm", 1, "beam"),
        write(write_run, "ptb", "kn5", 1, "top_p", "1987\u2028\n\nNA"),
        write(write_run, "ptb", "kn5", 1, "greedy", " ".join(["long"] * 30)),
        write(write_run, "grammar", "lstm", 1, "beam"),
        read_result(write_run("evaluate", "ptb/lstm-1-perplexity", "lstm", 1, {})),
    ]
    ((table, frame),) = samples_tables(results)
    assert list(table.panels) == ["grammar", "ptb"] and len(frame) == 5 * 8
    texts = [[value.text for value in row.values] for row in table.panels["ptb"]]
    kn5 = ["kn5", "greedy", "long " * 20 + "…"]
    assert texts == [
        ["the old", *kn5], ["", "kn5", "top_p", "1987 / NA first"], ["", "lstm", "beam", "man first"],
        ["a | b", *kn5], ["", "kn5", "top_p", "1987 / NA first"], ["", "lstm", "beam", "man first"],
        ["(nothing)", *kn5], ["", "kn5", "top_p", "1987 / NA first"], ["", "lstm", "beam", "man first"],
    ]  # fmt: skip
    assert [row.apart for row in table.panels["ptb"]] == [True, False, False] * 3
    assert table.panels["ptb"][2].values[1].runs == ("generate/ptb/lstm-1-beam",)
    assert samples_tables(results[-1:]) == []
