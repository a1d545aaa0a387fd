"""Tables have a note on test data that occur in the training data, where stages measured them."""

import math

from tests.reporting.specifications import SPECIFICATIONS
from tests.reporting.written import write_report

TEXT = "Test data that also occur in the training data: "


def notes(folder):
    return [line for line in (folder / "report.md").read_text().splitlines() if line.startswith(TEXT)]


def test_a_table_notes_the_shares_of_its_corpora_and_tasks(write_run, write_likelihood, tmp_path):
    oracle = write_run("prepare", "c", "oracle", 0, {"test/lines": 9})
    plain = {"prepare": [oracle], "evaluate": [write_likelihood("evaluate", "c/kn5-1", "kn5", 1, [10.0] * 5)]}
    write_report("own", plain, tmp_path / "plain", SPECIFICATIONS)
    assert notes(tmp_path / "plain") == []
    folders = {"prepare": [], "evaluate": [], "finetune": []}
    for corpus, lines in (("ptb", 0.017), ("wikitext2", 0.25)):
        metrics = {"test/lines": 9, "test/overlap_lines": lines, "test/overlap_13grams": 0.0106}
        folders["prepare"].append(write_run("prepare", corpus, "oracle", 0, metrics))
        folders["evaluate"].append(write_likelihood("evaluate", f"{corpus}/kn5-1", "kn5", 1, [10 * math.log(141)] * 5))
    for seed, drawn in ((1, 0.02), (2, 0.03)):  # each with training examples of its own
        metrics = {f"sst2/validation/{name}": share for name, share in {
            "accuracy": 0.9, "overlap_examples": drawn, "overlap_contradicted": 0.01}.items()}  # fmt: skip
        folders["finetune"].append(write_run("finetune", f"glue/sst2-bert-{seed}", "bert", seed, metrics))
    write_report("own", folders, tmp_path / "results", SPECIFICATIONS)
    of_texts, of_tasks = notes(tmp_path / "results")
    assert "ptb (test) 1.70 % of lines, 1.06 % of 13-grams; wikitext2 (test) 25.00 % of lines, 1.06 %" in of_texts
    assert "sst2 (validation) 2.00 to 3.00 % of examples, 1.00 % with other answers. " in of_tasks
    assert "overlap" not in "".join(path.read_text() for path in (tmp_path / "results").glob("*.csv"))
