"""A user's package outside of the project: a model, a tokenizer, a task and a benchmark."""

from pathlib import Path

from pipelines.config.project import CONF

PAGE = (CONF.parent / "docs/howto/add-a-system.md").read_text(encoding="utf-8")
MODEL = PAGE.partition("```python\n")[2].partition("```")[0]

FILES = {
    "__init__.py": """
from pathlib import Path

Path(__file__).parent.with_name("imported").touch()
""",
    "models.py": MODEL,
    "chars.py": '''
from collections.abc import Iterable

from retable.tokenizers.character import train as train_characters
from retable.tokenizers.tokenizer import Tokenizer


def train(lines: Iterable[str], vocabulary: Iterable[str] = (), fold: bool = True) -> Tokenizer:
    """Characters, in lower case."""
    return train_characters((line.lower() if fold else line for line in lines), vocabulary)
''',
    "base.py": '''
from retable.tasks.sentences import SentenceTask


class Reversed(SentenceTask):
    """Sentences from their last word to their first."""

    def examples(self, split):
        rows = super().examples(split)
        return [row._replace(sentences=tuple(turned(each) for each in row.sentences)) for row in rows]


def turned(text):
    return " ".join(reversed(text.split()))
''',
    "tasks.py": '''
from .base import Reversed


class Backwards(Reversed):
    """Of one's own."""
''',
    "benchmarks.py": '''
from retable.evaluation.perplexity import Perplexity


class Surprise(Perplexity):
    """Perplexity, under another name."""
''',
}
RECIPE = """# @package _global_
# A mean of the words so far, of a package outside of the project.
defaults:
  - /scorer: carried
  - _self_
  - override /model: running_mean
  - override /objective: causal_lm
  - override /optimizer: adamw
  - override /schedule: warmup_cosine
stage: pretrain
model: {d_model: 8}
objective: {tie: true}
batches:
  _target_: retable.data.streams.CarriedStreams
  batch_size: 4
  length: 16
optimizer: {lr: 5e-3, weight_decay: 0.0}
schedule: {warmup: 0.02, final: 0.02}
epochs: 1
clip_norm: 1.0
validations: 2
"""
TASK = """# @package _global_
defaults: [/task/sentiment, _self_]
task:
  _target_: mypkg.tasks.Backwards
"""
BENCHMARK = """# @package benchmark.surprise
_target_: mypkg.benchmarks.Surprise
tokens: outputs/tokenize/${tokens}
splits: [test]
"""
CONFIGURATIONS = {
    "model/running_mean": "_target_: mypkg.models.RunningMean\n", "recipe/recurrent/running_mean": RECIPE,
    "tokenizer/folded": "train:\n  _target_: mypkg.chars.train\n", "task/backwards": TASK,
    "benchmark/surprise": BENCHMARK,
}  # fmt: skip


def write_package(folder: Path) -> Path:
    """Write the package `mypkg` into a folder. Return the package's folder."""
    for name, text in FILES.items():
        (path := folder / "mypkg" / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / "mypkg"


def write_configurations(folder: Path) -> None:
    """Write configurations that name the package's classes, into a folder with the structure of conf/."""
    for name, text in CONFIGURATIONS.items():
        (path := folder / f"{name}.yaml").parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def imported(package: Path) -> bool:
    """Return whether a process has imported the package since the last call."""
    mark = package.with_name("imported")
    found = mark.exists()
    mark.unlink(missing_ok=True)
    return found
