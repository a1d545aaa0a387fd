"""Test that the default study's learning rates are those that validation chose in study rates."""

import pandas as pd
import pytest

from pipelines.config.project import CONF, DEFAULT, STUDIES
from pipelines.study.compose import composing, configuration
from retable.planning.conf import Conf
from retable.planning.study import read_study

CHOSEN = {  # systems of the default study, with their task: their names in study rates
    "pretrain fixed_window": "fixed_window",
    "pretrain elman": "elman",
    "pretrain lstm": "lstm",
    "pretrain gpt_rotary": "gpt_rotary",
    "pretrain elmo_1x128": "elmo_1x128",
    "pretrain bert_rotary": "bert_rotary",
    "embed skipgram": "on_skipgram",
    "from_scratch few_tags": "tagger",
    "finetune few_tags_skipgram": "tagger_skipgram",
    "finetune few_tags_elmo": "tagger_elmo",
    "from_scratch gpt_rotary": "gpt_scratch",
    "finetune gpt_pretrained": "gpt_pretrained",
    "from_scratch bert_rotary": "bert_scratch",
    "finetune bert_pretrained": "bert_pretrained",
}
COUNTED = {"kn5", "kn5_bpe"}  # systems without a learning rate


@pytest.fixture(scope="module")
def trained():
    """Return the learning rates of the default study, by `stage system`."""
    cells = read_study(Conf(CONF), STUDIES / DEFAULT / "study.yaml").cells.values()
    found = {f"{cell.stage} {cell.settings['system']}": cell for cell in cells if "recipe" in cell.settings}
    with composing():
        return {
            name: configuration(cell)["optimizer"]["lr"]
            for name, cell in found.items()
            if name.split()[1] not in COUNTED
        }


def test_every_system_is_tuned(trained):
    assert set(trained) == set(CHOSEN)


def test_each_takes_the_best_of_four_by_validation(trained):
    rates = pd.read_csv(STUDIES / "rates/results/rates.csv", keep_default_na=False)
    tried = rates.groupby("system")["rate"]
    assert set(tried.size()) == {4}
    assert all((ordered / ordered.shift()).iloc[1:].tolist() == pytest.approx([2, 2, 2]) for _, ordered in tried)
    best = rates[rates["best"]].set_index("system")["rate"]
    assert trained == {name: best[system] for name, system in CHOSEN.items()}


def test_what_starts_from_another_starts_from_its_best():
    study = read_study(Conf(CONF), STUDIES / "rates/study.yaml")
    rates = pd.read_csv(STUDIES / "rates/results/rates.csv", keep_default_na=False)
    best = rates[rates["best"]].set_index("system")["rate"]
    started = 0
    for cell in study.cells.values():
        start = cell.settings.get("init", cell.settings.get("embedding", "").removesuffix("/vectors.bin"))
        name = start.rpartition("/")[2].rpartition("-")[0]
        system = name.rpartition("_rate_")[0]
        if start and not cell.settings["system"].startswith("on_"):
            assert study.rates[system][name] == best["on_skipgram" if system == "skipgram" else system], cell.place
            started += 1
    assert started == 16  # systems that start from word vectors, an ELMo, a GPT and a BERT, with four rates each
