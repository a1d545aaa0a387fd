"""Test the table of learning rates, made from result folders in the format of stages."""

import pytest

from retable.core.errors import UsageError
from retable.reporting.rates import rates_rows
from retable.reporting.results import read_result, tidy
from tests.reporting.specifications import lines, of_rows

LSTM = {"lstm_rate_1": 1e-3, "lstm_rate_2": 2e-3, "lstm_rate_3": 4e-3}
BERT = {"bert_rate_1": 5e-4, "bert_rate_2": 1e-3}


@pytest.fixture
def write(write_run):
    def build(stage, system, task=None, seed=1, **metrics):
        metrics = {name.replace("__", "/"): value for name, value in metrics.items()}
        return write_run(stage, f"grammar/{task or 'text'}-{system}-{seed}", system, seed, metrics, task=task)

    return build


def tables(rates, folders, chosen_by=None):
    results = [read_result(folder) for folder in folders]
    pretrained = [result for result in results if result.run["stage"] == "pretrain"]
    trained = [result for result in results if result.run["stage"] == "finetune"]
    ((table, frame),) = of_rows("rates", rates_rows(rates, chosen_by or {}, pretrained, tidy(trained)))
    return table, frame


def test_the_lowest_loss_and_the_highest_metric_are_the_best(write):
    losses = zip(LSTM, (3.0, 2.5, 2.75), strict=True)
    folders = [write("pretrain", system, validation__loss=loss) for system, loss in losses]
    for system, score in zip(BERT, (0.5, 0.75), strict=True):
        scores = {"sentiment__validation__accuracy": score, "sentiment__test__accuracy": 1 - score}
        folders.append(write("finetune", system, "sentiment", **scores))
    table, frame = tables({"lstm": LSTM, "bert": BERT}, folders, {"sentiment": "accuracy"})
    lstm, bert = lines(table, "grammar")
    assert [lstm[f"Validation × {times}"].text for times in (1, 2, 4)] == ["3.000", "2.500", "2.750"]
    assert [lstm[f"Validation × {times}"].bold for times in (1, 2, 4)] == [False, True, False]
    assert (lstm["Lowest rate"].text, lstm["Best rate"].text) == ("0.001", "0.002")
    assert lstm["Chosen by"].text == "nats per token"
    assert lstm["Validation × 2"].runs == ("pretrain/grammar/text-lstm_rate_2-1",)
    assert [bert[f"Validation × {times}"].text for times in (1, 2, 4)] == ["50.0", "75.0", ""]
    assert (bert["Task"].text, bert["Chosen by"].text) == ("sentiment", "accuracy")
    assert bert["Best rate"].text == "0.001 *"  # the highest rate that was tried
    assert frame.loc[frame["best"], "rate"].tolist() == [2e-3, 1e-3]
    assert set(frame["split"]) == {"validation"}


def test_seeds_are_chosen_by_their_mean_and_equal_ones_by_the_lower_rate(write):
    scores = {("bert_rate_1", 1): 0.75, ("bert_rate_1", 2): 0.25, ("bert_rate_2", 1): 0.5, ("bert_rate_2", 2): 0.5}
    folders = [write("finetune", name, "cola", n, cola__validation__matthews=x) for (name, n), x in scores.items()]
    _, frame = tables({"bert": BERT}, folders, {"cola": "matthews"})
    assert frame["value"].tolist() == [0.5, 0.5] and frame["best"].tolist() == [True, False]
    assert frame["runs"].iloc[0] == "finetune/grammar/cola-bert_rate_1-1 finetune/grammar/cola-bert_rate_1-2"


def test_of_rates_that_are_nearly_as_good_the_lowest_is_taken(write):
    losses, scores = (2.5045, 2.5, 2.4997), (0.744, 0.75)
    folders = [write("pretrain", name, validation__loss=loss) for name, loss in zip(LSTM, losses, strict=True)]
    for name, score in zip(BERT, scores, strict=True):
        folders.append(write("finetune", name, "cola", cola__validation__matthews=score))
    _, frame = tables({"lstm": LSTM, "bert": BERT}, folders, {"cola": "matthews"})
    assert frame["best"].tolist() == [True, False, False, False, True]


def test_a_task_without_a_metric_to_choose_by_and_a_study_without_rates(write):
    folders = [write("finetune", "bert_rate_1", "cola", cola__validation__matthews=0.5, cola__validation__accuracy=0.5)]
    for chosen_by in ({}, {"cola": "acuracy"}):
        with pytest.raises(UsageError) as mistake:
            tables({"bert": BERT}, folders, chosen_by)
        told = "bert has rates, but no metric to choose the best rate for cola; write chosen_by: "
        assert str(mistake.value) == told + "{cola: accuracy, or matthews}"
    assert rates_rows({}, {}, [], tidy([])).empty
