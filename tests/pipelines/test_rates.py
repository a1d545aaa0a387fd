"""What the default study takes for its learning rates is what validation chose in study rates."""

import pandas as pd
import pytest

from pipelines.entry import CONF
from pipelines.plan import DEFAULT, composing, configuration
from retable.plan.conf import Conf
from retable.plan.study import read_study

CHOSEN = {  # of the default's systems, and of the task that each learns: what each is called in study rates
    "pretrain fixed_window": "fixed_window",
    "pretrain elman": "elman",
    "pretrain lstm": "lstm",
    "pretrain gpt": "gpt_rotary",
    "pretrain elmo": "elmo_1x128",
    "pretrain bert": "bert_rotary",
    "embed skipgram": "on_skipgram",
    "train bilstm_tagger": "tagger",
    "train bilstm_tagger_skipgram": "tagger_skipgram",
    "train elmo_tagger": "tagger_elmo",
    "train gpt": "gpt",
    "train gpt_pretrained": "gpt_pretrained",
    "train bert": "bert",
    "train bert_pretrained": "bert_pretrained",
}
COUNTED = {"kn5", "kn5_bpe"}  # without a rate


@pytest.fixture(scope="module")
def trained():
    """The rates of the default's systems, as `stage system` has them."""
    cells = read_study(Conf(CONF), DEFAULT).cells.values()
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
    rates = pd.read_csv(CONF.parent / "results/rates/rates.csv", keep_default_na=False)
    tried = rates.groupby("system")["rate"]
    assert set(tried.size()) == {4}
    assert all((ordered / ordered.shift()).iloc[1:].tolist() == pytest.approx([2, 2, 2]) for _, ordered in tried)
    best = rates[rates["best"]].set_index("system")["rate"]
    assert trained == {name: best[system] for name, system in CHOSEN.items()}


def test_what_starts_from_another_starts_from_its_best():
    study = read_study(Conf(CONF), "rates")
    rates = pd.read_csv(CONF.parent / "results/rates/rates.csv", keep_default_na=False)
    best = rates[rates["best"]].set_index("system")["rate"]
    started = 0
    for cell in study.cells.values():
        start = cell.settings.get("init", cell.settings.get("embedding", "").removesuffix("/vectors.bin"))
        name = start.rpartition("/")[2].rpartition("-")[0]
        system = name.rpartition("_rate_")[0]
        if start and not cell.settings["system"].startswith("on_"):
            assert study.rates[system][name] == best["on_skipgram" if system == "skipgram" else system], cell.place
            started += 1
    assert started == 16  # what starts from word vectors, an ELMo, a GPT and a BERT, at four rates each
