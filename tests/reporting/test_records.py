"""Test records of cells: they have the content of the cells, and change only if numbers change."""

import json
import math
import zipfile
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from retable.core.artifacts import write_record as write_making
from retable.core.errors import UsageError
from retable.models.elmo_features import ELMoBiLSTM
from retable.objectives.classification import Classification
from retable.reporting.records import read_results, write_record
from retable.reporting.results import Result, read_result
from retable.training.weights import save_weights
from tests.reporting.conftest import RECORD
from tests.reporting.test_mixes import ELMO, WORDS

SETTINGS = {"corpus": "ptb", "recipe": "recurrent/lstm", "seed": "1"}
CODE = "c0de"


def alike(one: Result, other: Result) -> bool:
    """Return whether two results are equal, with metrics of nine digits and configurations as they are read."""
    assert one.metrics == pytest.approx(other.metrics, rel=1e-8) and one.metrics.keys() == other.metrics.keys()
    assert yaml.safe_load(one.config) == yaml.safe_load(other.config)
    assert (one.name, one.run, one.benchmark) == (other.name, other.run, other.benchmark)
    assert one.tables.keys() == other.tables.keys()
    for name, table in one.tables.items():
        pd.testing.assert_frame_equal(table, other.tables[name], obj=name)
    return True


@pytest.fixture
def trained(write_likelihood, write_curve):
    """Return a cell with units and a curve, whose metrics have all their digits."""
    folder = write_likelihood("pretrain", "ptb/lstm-1", "lstm", 1, [30.0, math.pi * 10, 41.0])
    metrics = json.loads((folder / "metrics.json").read_text())
    (folder / "metrics.json").write_text(json.dumps(metrics | {"steps": 200, "flops": 1 / 3}))
    write_curve(folder, [6.0, 5.25, 1e-9])
    write_making(folder, RECORD)
    return folder


@pytest.fixture
def record(tmp_path):
    """Write the record of a cell. Return the path of the record."""

    def write(cell, settings=SETTINGS):
        path = tmp_path / "records" / cell.relative_to(tmp_path / "outputs").with_suffix(".json")
        write_record(cell, settings, CODE, path)
        return path

    return write


@pytest.fixture
def mixed(write_run):
    """Return a cell whose model has a scalar mix."""
    model = Classification(ELMoBiLSTM(WORDS, ELMO, 2, 4, 1, layers=None), 2, dropout=0.0)
    with torch.no_grad():
        model.model.mix.weights.copy_(torch.tensor([0.1, 1 / 3, -2.0]))
    folder = write_run("finetune", "glue/cola-elmo-1", "elmo", 1, {"cola/validation/matthews": 0.5}, task="cola")
    (folder / "config.yaml").write_text("model: {layers: null}\ntask: {labels: {0: bad, 1: good}}\n")
    save_weights(model, folder / "model.safetensors")
    return folder


def test_a_record_is_its_cell(trained, record, tmp_path):
    (restored,) = read_results(record(trained))
    assert alike(restored, read_result(trained)) and len(restored.tables["curve"]) == 3
    assert restored.sums["test/perplexity_word"].value() == pytest.approx(restored.metrics["test/perplexity_word"])
    assert restored.record["git_commit"] == "c0ffee" * 6 and restored.record["environment"] == {"python": "3.12.1"}
    path = tmp_path / "records/pretrain/ptb/lstm-9.json"
    with pytest.raises(UsageError) as mistake:
        [*read_results(path)]
    assert str(mistake.value) == f"{path} is missing; `retable repro` of its study makes it"


def test_a_record_keeps_the_speed_of_the_training_until_its_numbers_change(trained, record):
    write_making(trained, RECORD | {"tokens_per_second": 1234})
    path = record(trained)
    assert next(read_results(path)).record["tokens_per_second"] == 1234
    write_making(trained, RECORD | {"tokens_per_second": 999})
    assert next(read_results(record(trained))).record["tokens_per_second"] == 1234
    path.unlink()
    assert next(read_results(record(trained))).record["tokens_per_second"] == 999


def test_a_record_of_an_evaluation_has_each_benchmark_and_an_oracle_its_folder(write_likelihood, record, write_run):
    cell = write_likelihood("evaluate", "ptb/lstm-1", "lstm", 1, [30.0, 31.0]).parent
    (phenomena := cell / "phenomena").mkdir()
    (phenomena / "metrics.json").write_text('{"phenomena/total/excess": 0.123456789012}')
    rows = "".join(f"{unit},local,10,20.5,19\n" for unit in range(3))
    (phenomena / "phenomena.csv").write_text(f"unit,phenomenon,tokens,nats,true_nats\n{rows}")
    restored = [*read_results(record(cell))]
    assert [each.benchmark for each in restored] == ["measured", "phenomena"]
    assert {each.name for each in restored} == {"evaluate/ptb/lstm-1"}
    assert all(alike(each, read_result(cell / each.benchmark)) for each in restored)
    assert len(restored[1].tables["phenomena"]) == 3 and "units" in restored[0].tables
    cell = write_run("prepare", "ptb", "oracle", 0, {"test/perplexity_word": 45.0})
    (restored,) = read_results(path := record(cell))
    assert alike(restored, read_result(cell)) and not path.with_suffix(".zip").exists()


def test_a_record_has_the_mix_without_the_weights(mixed, record):
    (restored,) = read_results(path := record(mixed))
    direct = read_result(mixed)
    np.testing.assert_array_equal(restored.tables["mix"], direct.tables["mix"])
    config = yaml.safe_load(restored.config)  # JSON turns its keys into texts
    assert config["task"] == {"labels": {"0": "bad", "1": "good"}}
    assert alike(replace(restored, config=direct.config), direct)
    with zipfile.ZipFile(path.with_suffix(".zip")) as archive:
        assert archive.namelist() == ["mix.csv"]


def bytes_of(path):
    return path.read_bytes(), path.with_suffix(".zip").read_bytes()


def scaled(trained, factor):
    """Change each number of a cell's metrics, units and curve."""
    metrics = json.loads((trained / "metrics.json").read_text())
    changed = {key: value * factor if isinstance(value, float) else value for key, value in metrics.items()}
    (trained / "metrics.json").write_text(json.dumps(changed))
    for name, column in (("units.csv", "nats"), ("curve.csv", "value")):
        table = pd.read_csv(trained / name)
        table.assign(**{column: table[column] * factor}).to_csv(trained / name, index=False)


def remade(folder):
    """Make the same cell again."""
    write_making(
        folder, {"git_commit": "ad" * 20, "git_dirty": True, "hardware": "?", "environment": {}, "seconds": 2.5}
    )


def test_noise_leaves_a_record_as_it_is(trained, record, mixed):
    before = bytes_of(path := record(trained))
    scaled(trained, 1 + 1e-7)
    remade(trained)
    assert bytes_of(record(trained)) == before
    assert json.loads(path.read_text())["made"]["commit"] == "c0ffee" * 6
    before = bytes_of(record(mixed))
    remade(mixed)
    assert bytes_of(record(mixed)) == before


CHANGES = {
    "metrics.json": ('"steps": 200', '"steps": 201'),
    "config.yaml": ("seed: 1", "seed: 1\nepochs: 2"),
    "curve.csv": ("5.25", "5.26"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_replaces_a_record_with_its_origin(trained, record, name):
    record(trained)
    (trained / name).write_text((trained / name).read_text().replace(*CHANGES[name]))
    remade(trained)
    (restored,) = read_results(path := record(trained))
    assert alike(restored, read_result(trained))
    facts = {"code": CODE, "commit": "ad" * 20, "uncommitted_changes": True, "requirements": {}, "machine": "?"}
    facts["seconds"] = 2.5
    assert json.loads(path.read_text())["made"] == facts


def test_a_setting_of_the_study_and_a_table_that_is_gone_change_the_record(trained, record):
    record(trained)
    remade(trained)
    path = record(trained, SETTINGS | {"seed": "2"})
    made = json.loads(path.read_text())
    assert made["settings"]["seed"] == "2" and made["made"]["commit"] == "ad" * 20
    for name in ("units.csv", "curve.csv"):
        (trained / name).unlink()
    assert record(trained) == path and not path.with_suffix(".zip").exists()


@pytest.mark.parametrize("damage", [0, 1, 7, 100, -2, b"[]", b"3", b"{}", b'{"made": {}}', b"[" * 100_000])
@pytest.mark.parametrize("suffix", [".json", ".zip"])
def test_a_file_that_is_cut_off_or_another_is_one_line(trained, record, suffix, damage):
    path = record(trained)
    (file := path.with_suffix(suffix)).write_bytes(file.read_bytes()[:damage] if isinstance(damage, int) else damage)
    with pytest.raises(UsageError) as mistake:
        [*read_results(path)]
    assert str(mistake.value) == f"{file} is damaged; restore it: git checkout {file}"


def test_any_wrong_byte_of_an_archive_is_one_line_or_changes_nothing(trained, record):
    path = record(trained)
    whole = (file := path.with_suffix(".zip")).read_bytes()
    (expected,) = read_results(path)
    damaged = 0
    for place in range(0, len(whole), 3):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        try:
            (restored,) = read_results(path)
        except UsageError as error:
            assert str(file) in str(error)
            damaged += 1
        else:
            assert "units" not in restored.tables or alike(
                restored, expected
            )  # changes such as the date, or another name
    assert damaged > len(whole) / 6
