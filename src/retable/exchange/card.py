"""Write the model card of an exported model, `README.md` in Hugging Face's format."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from retable.core.errors import UsageError
from retable.core.escaping import in_one_line, markdown


@dataclass(frozen=True)
class Result:
    """A score of the model, with names as in reports: for example `perplexity_word` on split `test` of `grammar`."""

    metric: str
    value: float
    dataset: str
    split: str | None = None


@dataclass(frozen=True)
class Card:
    """The contents of a model card that cannot be derived from the model.

    about: a description of the model, in Markdown.
    datasets: names of the training data.
    """

    name: str
    about: str = ""
    license: str = "apache-2.0"
    datasets: Sequence[str] = ()
    results: Sequence[Result] = ()


def write_card(
    card: Card, path: Path, architecture: str, task: str | None, tags: Sequence[str], remote: bool = False
) -> None:
    """Write the model card of an export.

    Args:
        card: contents of the model card.
        path: the file to write.
        architecture: name of the model's class.
        task: the hub's name of the task; None for a model without a head.
        tags: tags for the hub; the tag `retable` is added.
        remote: whether the model's class is not in transformers; the export then contains the code of the class.

    Raises: UsageError: huggingface_hub rejects the contents.
    """
    card = Card(  # each field is converted to one line, because a line --- would end the card's header
        in_one_line(card.name),
        card.about,
        in_one_line(card.license),
        [*map(in_one_line, card.datasets)],
        [_shown(result) for result in card.results],
    )
    try:
        data = ModelCardData(
            license=card.license,
            library_name="transformers",
            pipeline_tag=task,
            tags=["retable", *tags],
            datasets=list(card.datasets) or None,
            metrics=list(dict.fromkeys(result.metric for result in card.results)) or None,
            model_name=card.name,
            eval_results=[
                EvalResult(
                    task_type=task or "feature-extraction",
                    dataset_type=result.dataset,
                    dataset_name=result.dataset,
                    dataset_split=result.split,
                    metric_type=result.metric,
                    metric_value=result.value,
                )
                for result in card.results
            ]
            or None,
        )
        written = ModelCard(f"---\n{data.to_yaml()}\n---\n\n{_text(card, architecture, remote)}")
    except (ValueError, TypeError) as error:
        raise UsageError(f"the model card of {card.name} cannot be written: {error}") from None
    written.save(path)


def _text(card: Card, architecture: str, remote: bool) -> str:
    architecture = "AutoModelForSequenceClassification" if remote else architecture
    more = ", trust_remote_code=True" if remote else ""
    lines = [f"# {markdown(card.name)}", "", *([card.about.strip(), ""] if card.about.strip() else [])]
    lines += [
        "Trained with Retable, and exported for transformers:",
        "",
        "```python",
        f"from transformers import AutoTokenizer, {architecture}",
        "",
        f'tokenizer = AutoTokenizer.from_pretrained("FOLDER"{more})',
        f'model = {architecture}.from_pretrained("FOLDER"{more})',
        "```",
        "",
    ]
    if remote:
        lines += ["The class is in `modeling_pooled.py`: a linear layer on the pooled states of a backbone.", ""]
    if card.results:
        lines += ["| data set | split | metric | value |", "| --- | --- | --- | ---: |"]
        lines += [_row(result) for result in card.results] + [""]
    return "\n".join(lines)


def _shown(result: Result) -> Result:
    split = in_one_line(result.split) if result.split else None
    return Result(in_one_line(result.metric), result.value, in_one_line(result.dataset), split)


def _row(result: Result) -> str:
    texts = [*map(markdown, (result.dataset, result.split or "", result.metric)), f"{result.value:.6g}"]
    return f"| {' | '.join(texts)} |"
