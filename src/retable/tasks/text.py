"""Write the texts of tasks as a corpus on which a tokenizer or word vectors can be trained."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from retable.corpora.text import SPLITS
from retable.tasks.sentences import sentences_of


def write_text(folder: Path, tasks: Mapping[str, Any]) -> dict[str, float]:
    """Write the texts of all tasks, in order, to train.txt, validation.txt and test.txt, with one text per line.

    If no task has a test split, test.txt is a copy of validation.txt.

    Returns: the number of lines and words of each split.
    """
    counts: dict[str, float] = {}
    for split in SPLITS:
        of_split = {name: split for name, task in tasks.items() if split in task.splits}
        lines = words = 0
        with (folder / f"{split}.txt").open("w", encoding="utf-8", newline="\n") as file:
            for name in of_split or tasks:
                for sentence in _texts(tasks[name], of_split.get(name, "validation")):
                    if sentence:
                        file.write(sentence + "\n")
                        lines, words = lines + 1, words + sentence.count(" ") + 1
        counts |= {f"{split}/lines": lines, f"{split}/words": words}
    return counts


def _texts(task: Any, split: str) -> Iterable[str]:
    examples = task.examples(split)
    return map(" ".join, task.words(examples)) if task.in_words else sentences_of(examples)
