"""Files of the embedded corpus and its tasks, with the scores of the true model."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TextIO

from retable.core.errors import UsageError
from retable.core.settings import Positive, PositiveInt, Seed
from retable.grammar.analogies import analogies
from retable.grammar.language import Grammar, Words
from retable.grammar.lone_sentences import LoneSentences
from retable.grammar.tasks import acceptability, judge_acceptability, judge_sentiment, sentiment
from retable.metrics.classification import classification_metrics
from retable.metrics.likelihood import likelihood_metrics, perplexity

SPLITS = ("train", "validation", "test")
SCORED_SPLITS = ("validation", "test")
TASKS: dict[str, tuple[Callable[..., Iterator[tuple[str, str]]], Callable[[Grammar, str], str]]] = {
    "acceptability": (acceptability, judge_acceptability),
    "sentiment": (sentiment, judge_sentiment),
}


def write_corpus(
    folder: Path,
    seed: Seed,
    words: Mapping[str, PositiveInt],
    task_examples: Mapping[str, PositiveInt],
    scale: Positive = 1.0,
    lexicon: Words = "invented",
) -> dict[str, float]:
    """Write the corpus, its vocabulary, tasks and analogies, and scores of the true model into an existing folder.

    Files:
        `<split>.txt`: documents, each followed by a blank line.
        `vocabulary.txt`: one word per line, sorted.
        `<task>/<split>.tsv`: the examples of a task, with columns sentence and label.
        `analogies.txt`: analogy questions.
        `units.csv`: one row per document of validation and test. Each row contains the document's loss in nats under
            the true model, and the document's loss if each sentence is scored without the sentences before it.

    The files are streamed, so memory does not grow with the sizes of the splits.

    Args:
        folder: output folder.
        seed: seed of the random streams, one per split and task.
        words: maps a split to its minimum number of words and line ends; the last document is complete.
        task_examples: maps a split to its number of examples per task.
        scale, lexicon: see `Grammar`.

    Returns:
        `<split>/<metric>` of the true model (see `likelihood_metrics`; the log of the perplexity is the entropy rate),
        `<split>/perplexity_word_alone` of a model without memory of earlier sentences (see `LoneSentences`), and
        `<task>/test/accuracy` and `<task>/test/matthews` of the Bayes-optimal predictor.

    Raises:
        UsageError: the size of a split is missing or below 1.
    """
    for name, sizes in (("words", words), ("task_examples", task_examples)):
        if set(sizes) != set(SPLITS) or min(sizes.values()) < 1:
            raise UsageError(f"{name}={dict(sizes)}; write a size of at least 1 for each of {', '.join(SPLITS)}")
    folder, grammar = Path(folder), Grammar(scale, lexicon)
    write_lines(folder / "vocabulary.txt", grammar.vocabulary)
    sections = analogies(grammar.lexicon).items()
    questions = (line for name, section in sections for line in (f": {name}", *map(" ".join, section)))
    write_lines(folder / "analogies.txt", questions)
    lone_sentences = LoneSentences(grammar)
    metrics: dict[str, float] = {}
    with (folder / "units.csv").open("w", encoding="utf-8", newline="\n") as scores:
        scores.write("split,unit,nats,tokens,words,bytes,nats_alone\n")
        for split in SPLITS:
            documents = until(words[split], grammar.documents(seed, split))
            if split in SCORED_SPLITS:
                totals = write_scored(folder / f"{split}.txt", documents, grammar, lone_sentences, split, scores)
                metrics |= {f"{split}/{name}": value for name, value in totals.items()}
            else:
                write_lines(folder / f"{split}.txt", (line for document in documents for line in (*document, "")))
    for task, (examples, judge) in TASKS.items():
        (folder / task).mkdir(exist_ok=True)
        labels, predictions = [], []
        for split in SPLITS:
            with (folder / task / f"{split}.tsv").open("w", encoding="utf-8", newline="\n") as file:
                file.write("sentence\tlabel\n")
                for sentence, label in islice(examples(grammar, seed, split), task_examples[split]):
                    file.write(f"{sentence}\t{label}\n")
                    if split == "test":
                        labels.append(label)
                        predictions.append(judge(grammar, sentence))
        metrics |= {f"{task}/test/{name}": v for name, v in classification_metrics(labels, predictions).items()}
    return metrics


def until(n_words: int, documents: Iterator[list[str]]) -> Iterator[list[str]]:
    """Yield documents until they contain at least `n_words` words and line ends in total."""
    while n_words > 0:
        document = next(documents)
        n_words -= count_words(document)
        yield document


def write_scored(
    path: Path,
    documents: Iterable[list[str]],
    grammar: Grammar,
    lone_sentences: LoneSentences,
    split: str,
    scores: TextIO,
) -> dict[str, float]:
    """Write documents to `path` and one row per document to `scores`; return metrics over all documents."""
    nats, nats_alone, n_words, n_bytes = 0.0, 0.0, 0, 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for unit, document in enumerate(documents):
            text = "\n".join([*document, "", ""])
            file.write(text)
            loss, words, size = -grammar.log_probability(document), count_words(document), len(text.encode())
            loss_alone = -lone_sentences.log_probability(document)
            # the grammar's tokens are words, so the columns `tokens` and `words` are equal
            scores.write(f"{split},{unit},{loss!r},{words},{words},{size},{loss_alone!r}\n")
            nats, nats_alone, n_words, n_bytes = nats + loss, nats_alone + loss_alone, n_words + words, n_bytes + size
    metrics = likelihood_metrics(nats, tokens=n_words, words=n_words, bytes=n_bytes)
    return metrics | {"perplexity_word_alone": float(perplexity(nats_alone, n_words))}


def count_words(document: Sequence[str]) -> int:
    """Count the words and line ends of a document, including the blank line after it."""
    return sum(sentence.count(" ") + 2 for sentence in document) + 1


def write_lines(path: Path, lines: Iterable[str]) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(f"{line}\n" for line in lines)
