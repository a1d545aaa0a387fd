"""A cell's system as a model of MLflow: a table of texts in, a table of what it makes of them out.

docs/howto/mlflow.md, "Serve a cell as a registered model", lists the input and answer columns of each kind of system.
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
from retable.inference.tasks import Chooser, Classifier, Reader, Resolver, Summarizer, Tagger, TaskSystem, Translator
from retable.inference.vectors import Vectors
from retable.tracking import registry

PAIR = ("text", "text_pair")  # of a classifier; most tasks have the first alone
SHOWN = 3  # rows of a model's example
# What a model's environment has to have: this package goes with the model.
REQUIREMENTS = (
    *("annotated-types", "numba", "numpy", "pandas", "pydantic", "pyyaml", "sacrebleu", "safetensors", "scipy"),
    *("tokenizers", "torch", "tqdm"),
)


class Served:
    """What MLflow asks of a model."""

    def __init__(self, system: Language | Vectors | TaskSystem):
        self._system = system

    def predict(self, table: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """A row of answers for each of the table's rows."""
        return answers(self._system, table)


def _load_pyfunc(folder: str) -> Served:
    """The model whose cell is in `folder`; by this name MLflow asks a module for one."""
    return Served(load(Path(folder)))


def answers(system: Language | Vectors | TaskSystem, table: pd.DataFrame) -> pd.DataFrame:
    """What the system makes of each row. UsageError for one that texts alone can't be given to."""
    match system:
        case Language() if "score" in system.can:
            texts = table["text"].tolist()
            found = {"log_prob": [each.log_prob for each in system.score(texts)]}
            if "perplexity" in system.can:
                found["perplexity_word"] = [system.perplexity(text) for text in texts]
            return pd.DataFrame(found)
        case Language() if "encode" in system.can:
            return pd.DataFrame({"vector": [row.tolist() for row in system.encode(table["text"].tolist(), "mean")]})
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
    raise UsageError(f"{system.folder} has no answer to a text; take a language model, an encoder or a task's system")


def examples(system: Language | Vectors | TaskSystem) -> pd.DataFrame:
    """Rows that the system reads, of the validation text of its corpus or of its task. UsageError where that is
    missing."""
    match system:
        case Vectors():
            return pd.DataFrame({"word": system.words[:SHOWN]})
        case Language():
            text = Path("outputs/prepare", read_run(system.folder)["corpus"], "validation.txt")
            return pd.DataFrame({"text": list(islice(filter(None, read_lines(require(text))), SHOWN))})
    found = system.task.examples("validation")[:SHOWN]
    match system:
        case Classifier():
            return pd.DataFrame([dict(zip(PAIR, each.sentences, strict=False)) for each in found])
        case Tagger():
            return pd.DataFrame({"text": [" ".join(each.words) for each in found]})
        case Reader():
            asked = [each.source for each in found]
            return pd.DataFrame({"question": [q.question for q in asked], "context": [q.context for q in asked]})
        case Chooser():
            return pd.DataFrame({"context": [c.context for c in found], "endings": [list(c.endings) for c in found]})
        case Resolver():
            return pd.DataFrame({"sentences": [[" ".join(words) for words in each.sentences] for each in found]})
        case Summarizer():
            return pd.DataFrame({"text": ["\n".join(each.text) for each in found]})
    return pd.DataFrame({"text": [each.source for each in found]})


def register(system: Language | Vectors | TaskSystem, name: str) -> int:
    """Keep a copy of the system's cell as a model of MLflow called `name`, and give its version.

    It has signature, example and requirements, and stands under the run that made the cell, where MLflow has that.
    UsageError for a system that has no answer to texts, where the example's text is missing, or for a name that MLflow
    doesn't take.
    """
    table = examples(system)
    return registry.register(system.folder, name, __name__, table, answers(system, table), REQUIREMENTS)
