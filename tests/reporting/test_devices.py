"""Test the table and the figure of trainings in several processes, made from result folders in the format of stages."""

from math import nan

import pytest
import yaml

from retable.core.errors import UsageError
from retable.reporting.devices import devices_figures, devices_rows
from retable.reporting.results import read_result
from tests.reporting.specifications import lines, of_rows

DEVICES = {"gpt": ["gpt_ddp_2", "gpt_fsdp_2", "gpt_fsdp_4"]}
TRAINERS = {
    "gpt": {"accelerator": "cpu", "devices": 1},
    "gpt_ddp_2": {"accelerator": "gpu", "devices": [0, 1], "num_nodes": 1, "strategy": "ddp"},
    "gpt_fsdp_2": {"accelerator": "cpu", "devices": 1, "num_nodes": 2, "strategy": "fsdp"},
    "gpt_fsdp_4": {"accelerator": "cpu", "devices": 4, "num_nodes": 1, "strategy": "fsdp"},
}


@pytest.fixture
def results(write_run):
    """Return runs with two seeds, of which the run in four processes has no speed."""

    def write(system, seed, loss, speed):
        record = {"tokens_per_second": speed} if speed else {}
        cell = write_run("pretrain", f"toy/{system}-{seed}", system, seed, {"validation/loss": loss}, record)
        (cell / "config.yaml").write_text(yaml.safe_dump({"trainer": TRAINERS[system]}), encoding="utf-8")
        return read_result(cell)

    measured = {"gpt": (4.0, 1000), "gpt_ddp_2": (4.0625, 1800), "gpt_fsdp_2": (3.5, 900), "gpt_fsdp_4": (4.0, None)}
    return [
        write(system, seed, loss + seed, speed and speed + 100 * (2 * seed - 3))
        for system, (loss, speed) in measured.items()
        for seed in (1, 2)
    ]


def test_each_row_is_compared_with_one_process(results):
    rows = devices_rows(DEVICES, results)
    assert rows["system"].tolist() == ["gpt", *DEVICES["gpt"]]
    assert rows["loss"].tolist() == [5.5, 5.5625, 5.0, 5.5]
    assert rows["mean"].tolist() == pytest.approx([nan, 0.0625, -0.5, 0.0], nan_ok=True)
    assert rows["processes"].tolist() == [1, 2, 2, 4]
    assert rows["efficiency"].tolist() == pytest.approx([1.0, 0.9, 0.45, nan], nan_ok=True)
    ((table, _),) = of_rows("devices", rows)
    texts = [{name: value.text for name, value in line.items()} for line in lines(table, "toy")]
    assert [each["Strategy"] for each in texts] == ["", "DDP", "FSDP", "FSDP"]
    assert [each["Device"] for each in texts] == ["CPU", "GPU", "CPU", "CPU"]
    assert [each["Difference of losses"] for each in texts] == ["", "+6.2e-02", "-5.0e-01", "+0.0e+00"]
    assert [each["Tokens/s"] for each in texts] == ["1,000", "1,800", "900", ""]
    assert [each["Efficiency"] for each in texts] == ["1.00", "0.90", "0.45", ""]


def test_the_figure_shows_speeds_relative_to_one_process(results):
    figure = devices_figures(devices_rows(DEVICES, results))["toy"].to_dict()
    points = {
        (row["variant"], row["x"], row["y"])
        for rows in figure["datasets"].values()
        for row in rows
        if "variant" in row and "place" not in row
    }
    assert points == {("ddp", 1, 1.0), ("ddp", 2, 1.8), ("fsdp", 1, 1.0), ("fsdp", 2, 0.9)}
    assert devices_figures(devices_rows({"gpt": ["gpt_fsdp_4"]}, results)) == {}


def test_a_system_without_a_loss_is_refused_and_a_study_may_have_none(write_run, results):
    counted = read_result(write_run("pretrain", "toy/kn5-1", "kn5", 1, {}))
    with pytest.raises(UsageError, match=r"^devices: kn5 has no validation loss; list only systems"):
        devices_rows({"gpt": ["kn5"]}, [*results, counted])
    assert devices_rows({}, results).empty and devices_figures(devices_rows({}, results)) == {}
