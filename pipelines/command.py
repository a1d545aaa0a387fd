"""The command `retable`: what is there, what it says, and trained systems put to use."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import retable
from retable.errors import UsageError

if TYPE_CHECKING:
    from retable.cells.language import Language

app = typer.Typer(
    help="Retable: the results tables of language-model pretraining. CELL is a cell's folder, its name below outputs/ "
    "(pretrain/ptb/kn5-1, or kn5-1 where one alone is called so), or runs:/ID of MLflow.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Cell = Annotated[str, typer.Argument(metavar="CELL", show_default=False)]
Texts = Annotated[list[str], typer.Argument(metavar="TEXT...", show_default=False)]
Seed = Annotated[int, typer.Option(help="of what is drawn")]


@app.command()
def studies() -> None:
    """The studies that there are, and what each is for."""
    from pipelines.entry import CONF

    for path in sorted((CONF / "study").glob("*.yaml")):
        first = path.read_text(encoding="utf-8").split("\n", 1)[0]
        print(f"{path.stem:18}{first.lstrip('# ')}")


@app.command()
def repro(
    study: Annotated[str, typer.Argument(help="of `retable studies`")] = "lineage",
    jobs: Annotated[int | None, typer.Option(help="stages at a time; by default one a core")] = None,
) -> None:
    """Make a study: what of it is stale, and its report."""
    from pipelines.repro import main

    sys.argv = ["retable repro", study, *(["--jobs", str(jobs)] if jobs else [])]
    main()


@app.command()
def new(name: str, settings: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...")] = None) -> None:
    """A study to start from: `retable new mine corpus=mine systems=kn5,lstm seeds=3`."""
    from pipelines.plan import main

    sys.argv = ["retable new", "new", name, *(settings or [])]
    main()


@app.command()
def tables(study: Annotated[str, typer.Argument(help="of `retable studies`")] = "lineage") -> None:
    """The tables of a study's report, as Markdown."""
    path = Path("results", study, "report.md")
    if not path.exists():
        raise UsageError(f"{path} is missing; `retable repro {study}` makes it")
    print(path.read_text(encoding="utf-8"), end="")


@app.command()
def show(cell: Cell) -> None:
    """What a cell is, what it can do, what it was made from, and its metrics."""
    from retable.artifacts import read_run

    system = retable.load(cell)
    run = read_run(system.folder)
    print(f"{system.folder}: {run['system']} on {run['corpus']}, seed {run['seed']}")
    print(f"can        {', '.join(system.can)}")
    print(f"made from  {', '.join(run['made_from']) or 'nothing'}")
    metrics = json.loads((system.folder / "metrics.json").read_text(encoding="utf-8"))
    for name, value in sorted(metrics.items()):
        print(f"{name:32}{value:.6g}")


@app.command()
def score(
    cell: Cell,
    texts: Texts,
    end: Annotated[bool, typer.Option(help="a line's end counts as a word; --no-end ranks beginnings of lines")] = True,
) -> None:
    """Lines of text, the likeliest first, with their natural log-probabilities."""
    system = _language(cell, texts)
    if not all(texts):
        raise UsageError("one of the texts is empty; leave it out")
    found = [(each.log_prob, len(each.tokens), each.text) for each in system.score(texts, end=end)]
    print(f"{'log-prob':>10}{'a token':>10}{'tokens':>8}  text")
    for log_prob, n, text in sorted(found, key=lambda row: -row[0]):
        print(f"{log_prob:10.3f}{log_prob / n:10.3f}{n:8}  {text}")


@app.command()
def generate(
    cell: Cell,
    prompt: Annotated[str, typer.Argument(help="what the text begins with")] = "",
    strategy: Literal["greedy", "beam", "sample"] = "greedy",
    max_new_tokens: int = 40,
    n: Annotated[int, typer.Option(help="texts, with beams or drawn")] = 1,
    num_beams: int = 4,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: Seed = 1,
) -> None:
    """How a text goes on, token by token as it comes; of several, with their log-probabilities."""
    system = _language(cell, [prompt])
    settings: dict[str, Any] = {}
    if strategy == "beam":
        settings = {"num_beams": num_beams}
    elif strategy == "sample":
        settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
    elif n != 1:
        raise UsageError(f"--n {n} texts are not greedy; write --strategy beam, or sample")
    if strategy == "beam" or n > 1:
        for text, log_prob in system.alternatives(prompt, strategy, max_new_tokens=max_new_tokens, n=n, **settings):
            print(f"{log_prob:9.3f}  {text}")
        return
    print(prompt, end="", flush=True)
    empty = True
    for piece in system.stream(prompt, strategy, max_new_tokens=max_new_tokens, **settings):
        print(piece, end="", flush=True)
        empty = False
    print()
    if empty:
        print("The model takes this for the end of its text; write more, or another prompt.", file=sys.stderr)


@app.command()
def classify(cell: Cell, texts: Texts) -> None:
    """The label of each text, or with pairs parted by a tab of each pair."""
    system = _able(cell, "classify")
    for label, text in zip(system.classify([_pair(text) for text in texts]), texts, strict=True):
        print(f"{label}\t{text}")


@app.command()
def tag(cell: Cell, texts: Texts) -> None:
    """Each word of the texts, whose words are parted by spaces, with its tag."""
    for words in _able(cell, "tag").tag(texts):
        print(" ".join(f"{word}/{label}" for word, label in words))


@app.command()
def answer(cell: Cell, question: str, context: str) -> None:
    """The answer to a question that a paragraph holds."""
    print(_able(cell, "answer").answer(question, context))


@app.command()
def translate(cell: Cell, texts: Texts) -> None:
    """The texts in the other language."""
    print("\n".join(_able(cell, "translate").translate(texts)))


@app.command()
def neighbours(cell: Cell, words: Annotated[list[str], typer.Argument(metavar="WORD...")], k: int = 10) -> None:
    """The nearest words by cosine. CELL may be a file of word vectors, too."""
    system = _able(cell, "neighbours")
    for word in words:
        near = ", ".join(f"{other} {cosine:.3f}" for other, cosine in system.neighbours(word, k))
        print(f"{word}: {near}")


@app.command()
def export(
    cell: Cell,
    place: Annotated[Path, typer.Argument(help="a file .arpa, or the folder of a checkpoint for transformers")],
    license: Annotated[str, typer.Option(help="of the model card, one of the hub's names")] = "apache-2.0",
) -> None:
    """An n-gram model as an ARPA file, or a GPT-2, BERT, ELECTRA or T5 as transformers loads it."""
    system = retable.load(cell)
    if place.suffix == ".arpa":
        _export_arpa(system, place)
    else:
        _export_checkpoint(system, place, license)


def _export_arpa(system: Any, file: Path) -> None:
    from retable.models.arpa import write_arpa
    from retable.models.ngram import BackoffModel

    if not isinstance(system.system, BackoffModel):
        raise UsageError(f"{system.folder} is no n-gram model; only those have ARPA files: take kn5-1, for example")
    write_arpa(system.system, system.tokenizer.words, file)


def _export_checkpoint(system: Any, folder: Path, license: str) -> None:
    from retable.artifacts import read_run
    from retable.cells.language import Language
    from retable.exchange import export
    from retable.exchange.card import Card, Result
    from retable.systems import TrainedSystem

    if not (isinstance(system, Language) and isinstance(system.system, TrainedSystem)):
        raise UsageError(
            f"{system.folder} holds no network, and transformers has nothing else; take gpt-1, for example"
        )
    run, cell = read_run(system.folder), system.folder
    about = f"System {run['system']}, trained on {run['corpus']} with seed {run['seed']}."
    results = []
    if cell.parts[-4:-3] == ("outputs",):  # what the stage evaluate has measured of it
        for path in sorted(Path(*cell.parts[:-3], "evaluate", cell.parts[-2]).glob(f"{cell.name}-*/metrics.json")):
            for name, value in json.loads(path.read_text(encoding="utf-8")).items():
                split, _, metric = name.rpartition("/")
                results.append(Result(metric, value, run["corpus"], split or None))
    name = "-".join(cell.parts[-2:])
    export.export(
        system.system.objective, system.tokenizer, folder, Card(name, about, license, [run["corpus"]], results)
    )


def _able(cell: str, ability: str) -> Any:
    """The system of a cell that can do this. UsageError for another."""
    system = retable.load(cell)
    if ability not in system.can:
        raise UsageError(f"{system.folder} can't {ability}; it can {', '.join(system.can)}")
    return system


def _language(cell: str, texts: Sequence[str]) -> "Language":
    """A language model; on standard error, which words of the texts it reads as unknown ones."""
    from pipelines.prompts import report_unknown

    system = _able(cell, "score")
    report_unknown(system.tokenizer, texts)
    return system


def _pair(text: str) -> Any:
    return tuple(text.split("\t")) if "\t" in text else text


def main() -> None:
    """Run the command; a mistake of use ends with one line on standard error and exit code 2."""
    try:
        app()
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
