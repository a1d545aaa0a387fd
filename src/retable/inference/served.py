"""A cell's system as an MLflow model that maps a table of texts to a table of results.

The page docs/howto/mlflow.md, "Serve a cell as a registered model", lists the input and output columns of each kind of
system.
"""

from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from retable.core.artifacts import read_run, require
from retable.core.errors import UsageError
from retable.corpora.text import read_lines
from retable.inference.language import Language
from retable.inference.load import load
from retable.inference.sentences import Sentences
from retable.inference.tasks import Chooser, Classifier, Reader, Resolver, Summarizer, Tagger, TaskSystem, Translator
from retable.inference.vectors import Vectors
from retable.tracking import registry

PAIR = ("text", "text_pair")  # Input columns of a classifier; most tasks have only the first column.
SHOWN = 3  # Number of rows in a model's input example.
# Packages in the environment of a served model; Retable itself is stored with the model.
REQUIREMENTS = (
    *("annotated-types", "numba", "numpy", "pandas", "pydantic", "pyyaml", "sacrebleu", "safetensors", "scipy"),
    *("tokenizers", "torch", "tqdm"),
)


class Served:
    """A system with the interface that MLflow requires of a model."""

    def __init__(self, system: Language | Vectors | Sentences | TaskSystem):
        self._system = system

    def predict(self, table: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """Return a row of results for each row of the table.

        Args:
            params: ignored; MLflow's interface requires this argument.
        """
        return answers(self._system, table)


def _load_pyfunc(folder: str) -> Served:
    """Load the model from the cell in `folder`; MLflow requires this function name."""
    return Served(load(Path(folder)))


def answers(system: Language | Vectors | Sentences | TaskSystem, table: pd.DataFrame) -> pd.DataFrame:
    """Return the system's results for each row of a table.

    Args:
        table: the inputs. The kind of system determines the columns: `text`, `word`, `question` and `context`,
            `context` and `endings`, or `sentences`.

    Returns: for each row of `table` one row: scores in nats, vectors, labels, tags or texts.
    Raises: UsageError: this kind of system computes no results for single texts.
    """
    match system:
        case Language() if "score" in system.can:
            texts = table["text"].tolist()
            scores = {"log_prob": [each.log_prob for each in system.score(texts)]}
            if "perplexity" in system.can:
                scores["perplexity_word"] = [system.perplexity(text) for text in texts]
            return pd.DataFrame(scores)
        case Language() if "encode" in system.can:
            return pd.DataFrame({"vector": [row.tolist() for row in system.encode(table["text"].tolist(), "mean")]})
        case Sentences():
            return pd.DataFrame({"vector": [row.tolist() for row in system.encode(table["text"].tolist())]})
        case Vectors():
            near = [list(zip(*system.neighbours(word), strict=True)) for word in table["word"]]
            return pd.DataFrame([{"neighbours": list(words), "cosines": list(cosines)} for words, cosines in near])
        case Classifier():
            columns = [table[name] for name in PAIR if name in table]
            return pd.DataFrame({"label": system.classify(list(zip(*columns, strict=True)))})
        case Tagger():
            tagged = system.tag(table["text"].tolist())
            return pd.DataFrame({"tags": [[tag for _, tag in words] for words in tagged]})
        case Reader():
            return pd.DataFrame({"answer": list(map(system.answer, table["question"], table["context"]))})
        case Chooser():
            return pd.DataFrame({"choice": list(map(system.choose, table["context"], table["endings"]))})
        case Resolver():
            return pd.DataFrame({"clusters": list(map(system.resolve, table["sentences"]))})
        case Translator():
            return pd.DataFrame({"translation": system.translate(table["text"].tolist())})
        case Summarizer():
            return pd.DataFrame({"summary": system.summarize(table["text"].tolist())})
    raise UsageError(f"{system.folder} has no result for a text; use a language model, an encoder or a task's system")


def examples(system: Language | Vectors | Sentences | TaskSystem) -> pd.DataFrame:
    """Return example rows from the validation text of the system's corpus or task.

    Raises: UsageError: the validation text is missing.
    """
    match system:
        case Vectors():
            return pd.DataFrame({"word": system.words[:SHOWN]})
        case Sentences():
            return pd.DataFrame({"text": ["the encoder reads one sentence", "and returns one vector"]})
        case Language():
            text = Path("outputs/prepare", read_run(system.folder)["corpus"], "validation.txt")
            return pd.DataFrame({"text": list(islice(filter(None, read_lines(require(text))), SHOWN))})
    rows = system.task.examples("validation")[:SHOWN]
    match system:
        case Classifier():
            return pd.DataFrame([dict(zip(PAIR, each.sentences, strict=False)) for each in rows])
        case Tagger():
            return pd.DataFrame({"text": [" ".join(each.words) for each in rows]})
        case Reader():
            asked = [each.source for each in rows]
            return pd.DataFrame({"question": [q.question for q in asked], "context": [q.context for q in asked]})
        case Chooser():
            return pd.DataFrame({"context": [c.context for c in rows], "endings": [list(c.endings) for c in rows]})
        case Resolver():
            return pd.DataFrame({"sentences": [[" ".join(words) for words in each.sentences] for each in rows]})
        case Summarizer():
            return pd.DataFrame({"text": ["\n".join(each.text) for each in rows]})
    return pd.DataFrame({"text": [each.source for each in rows]})


def register(system: Language | Vectors | Sentences | TaskSystem, name: str) -> int:
    """Register a copy of the system's cell in MLflow as the model `name`, and return its version.

    The model has a signature, an example and requirements, and is linked to the run that made the cell, if MLflow
    contains this run.

    Raises: UsageError: this kind of system computes no results for single texts, the validation text for the example is
        missing, or MLflow refuses the name.
    """
    table = examples(system)
    return registry.register(system.folder, name, __name__, table, answers(system, table), REQUIREMENTS)
