"""Test the curve of accuracies by number of examples, made from result folders in the format of stage evaluate."""

import pandas as pd
import pytest

from retable.reporting.names import display_name
from retable.reporting.results import aggregate, read_result
from retable.reporting.shots import shots_figures
from tests.reporting.charts import line, table, texts
from tests.reporting.specifications import REFERENCES

ACCURACIES = {"gpt": {0: 5, 1: 6, 4: 8}, "kn5": {0: 5, 4: 4}}  # right answers out of ten


def test_a_line_a_system_goes_through_its_accuracies_a_figure_a_split(write_run):
    # Questions of another kind, with one number of examples, have no line.
    other = {"prompted_sst2_2/validation/accuracy": 0.5, "prompted_toy_2_generated/validation/accuracy": 0.1}
    folders = [write_run("evaluate", "grammar/gpt-1-other", "gpt", 1, other)]
    for system, by_shots in ACCURACIES.items():
        for shots, right in by_shots.items():
            metrics = {f"prompted_toy_{shots}/validation/accuracy": right / 10}
            folders.append(write_run("evaluate", f"grammar/{system}-1-shots_{shots}", system, 1, metrics))
            units = pd.DataFrame({"split": "validation", "unit": range(10), "label": 0})
            units["prediction"] = [0] * right + [1] * (10 - right)
            units.to_csv(folders[-1] / "units.csv", index=False)
    frame = aggregate(map(read_result, folders), REFERENCES)
    ((name, figure),) = shots_figures(frame).items()
    assert name == "grammar-toy"
    for (system, by_shots), aside in zip(ACCURACIES.items(), (-0.02, 0.02), strict=True):
        places = [pytest.approx(shots + aside) for shots in by_shots]
        assert line(figure, system) == (places, [pytest.approx(10 * right) for right in by_shots.values()])
    bars = table(figure, "low")
    own = frame[frame["task"].str.fullmatch(r"prompted_toy_\d") & (frame["metric"] == "accuracy")]
    assert sorted(bars["low"]) == pytest.approx(sorted(100 * own["ci_low"]), rel=1e-3)
    assert {"GPT", display_name("kn5"), "0", "1", "4"} <= {*texts(figure)}
    for shots in (0, 4):
        metrics = {f"prompted_toy_{shots}/test/accuracy": 0.9}
        folders.append(write_run("evaluate", f"grammar/gpt-1-test_{shots}", "gpt", 1, metrics))
    figures = shots_figures(aggregate(map(read_result, folders), REFERENCES))
    assert [*figures] == ["grammar-toy-test", "grammar-toy-validation"]
    assert line(figures["grammar-toy-test"], "gpt")[1] == [90, 90]
