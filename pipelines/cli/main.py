"""The command `retable`: what is there, what it says, and trained systems put to use."""

import contextlib
import io
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.exceptions import TyperException

import retable
from retable.core.errors import UsageError, reading, show_warnings_in_one_line
from retable.core.escaping import in_one_line, visible

app = typer.Typer(
    help="Retable: the results tables of language-model pretraining. CELL is a cell's folder, its name below outputs/ "
    "(pretrain/ptb/kn5-1, or kn5-1 where one alone is called so), or runs:/ID of MLflow. Commands that take a CELL "
    "run in the project's folder; those that take a STUDY find it by its name from any folder.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Cell = Annotated[str, typer.Argument(metavar="CELL", show_default=False)]
Texts = Annotated[list[str], typer.Argument(metavar="TEXT...", show_default=False)]
OPTIONS = {  # of each strategy
    "greedy": (),
    "beam": ("num_beams",),
    "sample": ("temperature", "top_k", "top_p", "typical_p"),
    "contrastive": ("top_k", "penalty_alpha"),
}
Seed = Annotated[int, typer.Option(help="of what is drawn", min=0, max=2**32 - 1)]


Study = Annotated[
    str | None,
    typer.Argument(help="a name of `retable studies`, or a study's folder; by default the one that you are in",
                   show_default=False),
]  # fmt: skip


# Find their project by a study's name, or need none. The others start paths in the folder that they are given in.
ANYWHERE = ("studies", "repro", "why", "new", "graph", "report", "tables", "bands")


@app.callback()
def options(
    context: typer.Context,
    trust: Annotated[
        list[str] | None,
        typer.Option(metavar="PACKAGE", help="run the code of an installed package of yours: models, tasks, …"),
    ] = None,
) -> None:
    """Read what stands before the command."""
    if trust:
        from retable.core.trust import trust as trust_packages

        trust_packages(trust)
    if context.invoked_subcommand not in ANYWHERE:
        from pipelines.config.project import require_project_folder

        require_project_folder()


@app.command()
def studies() -> None:
    """List the studies of the project."""
    from pipelines.config.project import STUDIES, STUDY, study_names
    from retable.planning.conf import comment_of

    width = max(shutil.get_terminal_size().columns, 60)
    for study in study_names():
        with reading(path := STUDIES / study / STUDY, ValueError):
            about = comment_of(path)
        first = re.split(r"(?<=[.?])(?<!\bal\.)\s", about, maxsplit=1)[0]  # sentence; "et al." ends none
        print(textwrap.fill(f"{study:18}{first}", width, subsequent_indent=" " * 18, break_on_hyphens=False))


@app.command()
def repro(
    study: Study = None,
    jobs: Annotated[int | None, typer.Option(help="stages at a time; by default one per core")] = None,
    engine: Annotated[str, typer.Option(help="what runs them: local, ray or slurm")] = "local",
) -> None:
    """Make a study: its stale cells and its report."""
    from retable.training.signals import end_at_once

    end_at_once()
    from pipelines.config.errors import one_line_errors

    with one_line_errors():
        from pipelines.execute.repro import repro

        code = repro(study, jobs, engine)
    raise typer.Exit(code)


@app.command()
def why(
    name: Annotated[
        str | None, typer.Argument(metavar="[CELL|STUDY]", help="such as gpt-1", show_default=False)
    ] = None,
    study: Annotated[str | None, typer.Option(help="of the cell; by default the one that you are in")] = None,
) -> None:
    """Explain why cells would run, or would not."""
    from pipelines.config.errors import one_line_errors

    with one_line_errors():
        from pipelines.study.explain import why

        why(name, study)


@app.command()
def new(folder: str, settings: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...")] = None) -> None:
    """Write a study to start from: FOLDER/study.yaml."""
    from pipelines.config.errors import one_line_errors

    with one_line_errors():
        from pipelines.config.project import enter_project
        from pipelines.study.dvc_project import graph, new

        new(folder, settings or [])
        enter_project(folder)
        graph()


@app.command()
def graph(study: Study = None) -> None:
    """Write a study's params.yaml and dvc.yaml."""
    from pipelines.config.errors import one_line_errors

    with one_line_errors():
        from pipelines.config.project import enter_project
        from pipelines.study.dvc_project import graph

        enter_project(study, say=True)
        graph()


@app.command()
def report(study: Study = None) -> None:
    """Render a study's report from its records."""
    from pipelines.config.errors import one_line_errors

    with one_line_errors():
        from pipelines.app.rendering import render
        from pipelines.config.project import enter_project
        from pipelines.study.compose import study_here

        enter_project(study)
        _report_changed(_cells_of_records(), "the report has the earlier scores")
        print(f"The report is {render(study_here())}")


@app.command()
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="a system, a cell, a study or a commit")],
    b: Annotated[str, typer.Argument(metavar="B", help="another of the same kind; a commit goes with a study, too")],
    metric: Annotated[str | None, typer.Option(help="only this one, such as test/perplexity_word")] = None,
    study: Annotated[
        str | None, typer.Option(help="whose records are read; by default the cells below outputs/")
    ] = None,
) -> None:
    """Compare two systems: is A better than B? Or list what differs between two studies or commits."""
    from pipelines.config.errors import one_line_errors

    with one_line_errors():
        from pipelines.cli.compare import print_comparison

        print_comparison(a, b, metric, study)


@app.command()
def sweep(
    sweeps: Annotated[list[str], typer.Argument(metavar="SWEEP...", help="folders below multirun/")],
) -> None:
    """What a sweep found, or several side by side: their trials, and a page of figures."""
    from pipelines.config.errors import one_line_errors

    with one_line_errors():
        from pipelines.execute.grid import show

        show(sweeps)


@app.command()
def adopt(
    sweep: Annotated[str, typer.Argument(metavar="SWEEP", help="a folder below multirun/")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the settings, and write nothing")] = False,
    name: Annotated[str | None, typer.Option("--as", metavar="NAME", help="write a new recipe instead")] = None,
) -> None:
    """Write the settings of a sweep's best trial into its recipe."""
    from pipelines.config.errors import one_line_errors

    with one_line_errors():
        from pipelines.execute.adopt import adopt

        adopt(sweep, dry_run, name)


@app.command()
def tables(
    study: Study = None,
    latex: Annotated[bool, typer.Option("--latex", help="for the package booktabs, rendered from the records")] = False,
) -> None:
    """Print the tables of a study's report, as Markdown or LaTeX."""
    from pipelines.config.errors import one_line_errors
    from pipelines.config.project import enter_project, files_of_study

    enter_project(study)
    _report_changed(_cells_of_records(), f"`retable repro{f' {study}' if study else ''}` makes the tables again")
    if latex:
        with one_line_errors():
            from pipelines.app.rendering import print_latex
            from pipelines.study.compose import study_here

            print_latex(study_here())
        return
    path = Path(f"{files_of_study()}results", "report.md")
    if not path.exists():
        raise UsageError(f"{path} is missing; `retable repro` makes it")
    with reading(path, ValueError):
        text = path.read_text(encoding="utf-8")
    print(text, end="")


@app.command()
def bands(
    study: Study = None,
    summarise: Annotated[bool, typer.Option("--summary", help="print a summary in Markdown, with exit code 0")] = False,
) -> None:
    """Check a study's tables against its recorded bands; exit code 1 on a drift."""
    from pipelines.study.bounds import bands, summary

    if summarise:
        print(summary(study))
        return
    raise typer.Exit(0 if bands(study) else 1)


@app.command()
def show(cell: Cell) -> None:
    """Print what a cell is, what it can do, what it was made from, and its scores; of a system also its evaluations."""
    from retable.core.artifacts import main_scores, read_json, read_run
    from retable.core.stages import SYSTEM_STAGES
    from retable.inference.find import find_cell

    folder = find_cell(cell)
    _report_changed([folder], "the cell is of the earlier text")
    run = read_run(folder)
    seed = "imported" if "imported" in run else f"seed {run['seed']}"
    _say(f"{folder}: {run['system']} on {run['corpus']}, {seed}")
    if run["stage"] in SYSTEM_STAGES:
        print(f"can        {', '.join(retable.load(folder).can)}")
    _say(f"made from  {', '.join(run['made_from']) or run.get('imported', 'nothing')}")
    for name, value in sorted(read_json(folder / "metrics.json").items()):
        _say(f"{name:31} {value:.6g}")
    *_, outputs = folder.resolve().parents[:3]
    place = folder.resolve().relative_to(outputs).as_posix()
    for path in sorted(outputs.glob("evaluate/*/*/run.json")):
        if place in read_run(path.parent)["made_from"]:
            _say(f"measured   {os.path.relpath(path.parent)}")
            for name, value in main_scores(read_json(path.with_name("metrics.json")), 8).items():
                _say(f"{name:31} {value:.6g}")


@app.command()
def score(
    cell: Cell,
    texts: Texts,
    end: Annotated[bool, typer.Option(help="a line's end counts as a word; --no-end ranks beginnings of lines")] = True,
) -> None:
    """Lines of text, the likeliest first, with their natural log-probabilities."""
    system = _able(cell, "score")
    if not all(text.split() for text in texts):
        raise UsageError("one of the texts is empty; leave it out")
    found = [(each.log_prob, len(each.tokens), each.text) for each in system.score(texts, end=end)]
    print(f"{'log-prob':>10}{'a token':>10}{'tokens':>8}  text")
    for log_prob, n, text in sorted(found, key=lambda row: -row[0]):
        print(f"{log_prob:10.3f}{log_prob / n:10.3f}{n:8}  {text}")


@app.command()
def generate(
    cell: Cell,
    prompt: Annotated[str, typer.Argument(help="what the text begins with")] = "",
    strategy: Literal["greedy", "beam", "sample", "contrastive"] = "greedy",
    max_new_tokens: int = 40,
    n: Annotated[int, typer.Option(help="texts, with beams or drawn", min=1)] = 1,
    num_beams: Annotated[int | None, typer.Option(help="of beams, by default 4")] = None,
    temperature: Annotated[float | None, typer.Option(help="of what is drawn, by default 1")] = None,
    top_k: Annotated[
        int | None, typer.Option(help="likeliest tokens: to draw from, or 8 of contrastive search")
    ] = None,
    top_p: Annotated[float | None, typer.Option(help="of what is drawn from, by default 1")] = None,
    typical_p: Annotated[float | None, typer.Option(help="of the typical set that is drawn from, by default 1")] = None,
    penalty_alpha: Annotated[float | None, typer.Option(help="of contrastive search, by default 0.6")] = None,
    seed: Seed = 1,
    discriminator: Annotated[str | None, typer.Option(help="a cell that tells labels from beginnings")] = None,
    label: Annotated[str, typer.Option(help="of the discriminator's, that texts are to have")] = "",
    special_tokens: Annotated[
        bool, typer.Option("--special-tokens", help="read names such as <extra_id_0> in the prompt as special tokens")
    ] = False,
) -> None:
    """How a text goes on, token by token as it comes; of several, with their log-probabilities."""
    system = _able(cell, "score")
    if n != 1 and strategy not in ("beam", "sample"):
        raise UsageError(f"--n {n} texts are not {strategy}; write --strategy beam, or sample")
    given = {"num_beams": num_beams, "temperature": temperature, "top_k": top_k}
    given |= {"top_p": top_p, "typical_p": typical_p, "penalty_alpha": penalty_alpha}
    settings: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    for name in (name for name in settings if name not in OPTIONS[strategy]):
        others = " or ".join(other for other, options in OPTIONS.items() if name in options)
        raise UsageError(f"--{name.replace('_', '-')} is nothing to {strategy}; write --strategy {others}")
    if strategy == "sample":
        settings["seed"] = seed
    if discriminator is not None:
        settings |= {"discriminator": discriminator, "label": label}
    elif label:
        raise UsageError(f"--label {label} is told by a discriminator; write --discriminator CELL, too")
    settings["special_tokens"] = special_tokens
    if strategy == "beam" or n > 1:
        for text, log_prob in system.alternatives(prompt, strategy, max_new_tokens=max_new_tokens, n=n, **settings):
            _say(f"{log_prob:9.3f}  {text}")
        return
    pieces = system.stream(prompt, strategy, max_new_tokens=max_new_tokens, **settings)
    _say(prompt if system.goes_on else "", end="")
    empty = True
    for piece in pieces:
        _say(piece, end="")
        empty = False
    print()
    if empty:
        print("The model takes this for the end of its text; write more, or another prompt.", file=sys.stderr)


@app.command()
def sync() -> None:
    """Send MLflow the runs that it did not take when they were made, and close those of killed commands."""
    from retable.tracking.run import end_killed, n_waiting, send_waiting

    sent = send_waiting()
    if ended := end_killed():
        print(f"closed as KILLED: {ended}")
    if left := n_waiting():
        raise UsageError(f"{left} of {left + sent} runs wait on; MLFLOW_TRACKING_URI says where MLflow is sought")
    print(f"sent: {sent}" if sent else "no run waits")


@app.command()
def predict(
    cell: Cell,
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="csv, tsv, jsonl or parquet; - for standard input")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="a text in place of a file; a pair is separated by a tab")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="the file to write; by default standard output")] = None,
) -> None:
    """Predict labels, scores or tags for a file's rows."""
    from pipelines.cli.predict import predict

    predict(_able(cell, "predict"), file, text or [], out)


@app.command()
def tag(cell: Cell, texts: Texts) -> None:
    """Each word of the texts, whose words are parted by spaces, with its tag."""
    for words in _able(cell, "tag").tag(texts):
        _say(" ".join(f"{word}/{label}" for word, label in words))


@app.command()
def answer(cell: Cell, question: str, context: str) -> None:
    """The answer to a question that a paragraph holds."""
    _say(_able(cell, "answer").answer(question, context))


@app.command()
def translate(
    cell: Cell,
    texts: Texts,
    attention: Annotated[
        Path | None, typer.Option(help="a file .svg: what each written word looked at; of several texts FILE-1.svg, …")
    ] = None,
) -> None:
    """The texts in the other language."""
    from retable.tokenizers.report import unknown_words

    system = _able(cell, "translate")
    if not all(text.split() for text in texts):
        raise UsageError("one of the texts is empty; leave it out")
    if strange := unknown_words(system.tokenizer, texts):
        raise UsageError(f"{system.folder} does not know {', '.join(strange)}; write words of its training text")
    if attention is None:
        _say("\n".join(system.translate(texts)))
        return
    if "attend" not in system.can:
        raise UsageError(f"{system.folder} looks back at nothing of the source; leave --attention out")
    if attention.suffix != ".svg":
        raise UsageError(f"--attention {attention} is no .svg; write {attention.stem or 'attention'}.svg")
    if not attention.parent.is_dir():
        raise UsageError(f"--attention {attention}: there is no folder {attention.parent}; make it first")
    from retable.reporting.alignments import alignment_map
    from retable.reporting.figures import write_figure

    for number, found in enumerate(system.attend(texts), 1):
        _say(found.text)
        place = attention.with_stem(f"{attention.stem}-{number}") if len(texts) > 1 else attention
        write_figure(alignment_map(found.source, found.written, found.weights), place)


@app.command()
def neighbours(
    cell: Cell,
    words: Annotated[list[str], typer.Argument(metavar="WORD...")],
    k: Annotated[int, typer.Option(min=1)] = 10,
) -> None:
    """The nearest words by cosine. CELL may be a file of word vectors, too."""
    system = _able(cell, "neighbours")
    for word in words:
        near = ", ".join(f"{other} {cosine:.3f}" for other, cosine in system.neighbours(word, k))
        _say(f"{word}: {near}")


@app.command()
def describe(
    corpus: str,
    tokenizer: Annotated[str, typer.Argument()] = "word",
    words: Annotated[list[str] | None, typer.Argument(metavar="[WORD]...", help="to see the parts of")] = None,
    other: Annotated[str | None, typer.Option(help="another prepared corpus")] = None,
    characters: Annotated[int, typer.Option(help="of each split at most")] = 10_000_000,
) -> None:
    """What a tokenizer makes of its corpus, of single words and of another corpus."""
    from pipelines.cli.describe import describe

    describe(corpus, tokenizer, words or [], other, characters)


@app.command()
def submit(
    system: Annotated[str, typer.Argument(help="trained on GLUE's tasks")],
    corpus: Annotated[str, typer.Option(help="that its cells are of")] = "glue",
    seed: int = 1,
    test: Annotated[list[str] | None, typer.Option(help="one set, such as RTE; by default all, as it wants")] = None,
) -> None:
    """GLUE's archive of a system's test predictions, for its server."""
    from pipelines.cli.submit import SETS, submit

    submit(system, corpus, seed, test or list(SETS))


@app.command()
def export(
    cell: Cell,
    place: Annotated[Path, typer.Argument(help="a file .arpa, .txt or .bin, or the folder of a checkpoint")],
    license: Annotated[str, typer.Option(help="of the model card, one of the hub's names")] = "apache-2.0",
) -> None:
    """A cell in others' formats: an n-gram model as an ARPA file, word vectors in word2vec's text (.txt) or binary
    (.bin) format, a GPT, BERT, ELECTRA, T5 or a classifier on one as transformers loads it."""
    from pipelines.cli.export import export_cell

    export_cell(cell, place, license)


@app.command("import")
def import_(
    source: Annotated[str, typer.Argument(help="a file .arpa, .txt or .bin; a folder or hub name of a checkpoint")],
    name: Annotated[str, typer.Argument(metavar="CORPUS/NAME", help="of the cell, below outputs/<stage>/")],
) -> None:
    """What was made elsewhere as a cell: an ARPA file, word vectors in word2vec's format, a GPT, BERT or T5."""
    from pipelines.cli.import_ import import_cell

    print(import_cell(source, name))


@app.command()
def register(
    cell: Cell,
    name: Annotated[str, typer.Option(help="of the model; by default <corpus>-<cell>")] = "",
) -> None:
    """A cell as a model of MLflow, which `mlflow models predict` and `serve` take."""
    from retable.inference import served

    system = retable.load(cell)
    _report_changed([system.folder], "the model is of the earlier text")
    name = name or "-".join(system.folder.parts[-2:])
    model = f"models:/{name}/{served.register(system, name)}"
    print(f"{model} is {system.folder}; mlflow models predict -m {model} --env-manager local -i input.json")


def _say(text: str, end: str = "\n") -> None:
    """Print what a cell says, which may have come from elsewhere: none of it is a command to the terminal."""
    print(visible(text), end=end, flush=True)


def _cells_of_records() -> list[Path]:
    """The cells whose scores a study's report has."""
    from pipelines.config.project import files_of_study

    records = Path(f"{files_of_study()}records")
    return [Path("outputs", path.relative_to(records).with_suffix("")) for path in sorted(records.rglob("*.json"))]


def _report_changed(cells: Sequence[Path], note: str) -> None:
    """Name on standard error the texts and data sets that have changed since cells were made from them."""
    from retable.core.artifacts import changed_inputs

    for path, place in sorted(changed_inputs(cells).items()):
        line = f"stale: {os.path.relpath(path)} has changed since {place} was made; {note}"
        print(in_one_line(line), file=sys.stderr)


def _able(cell: str, ability: str) -> Any:
    """The system of a cell that can do this. UsageError for another."""
    system = retable.load(cell)
    if ability not in system.can:
        raise UsageError(f"{system.folder} can't {ability}; it can {', '.join(system.can)}")
    return system


def main() -> None:
    """Run the command; a mistake of use ends with one line on standard error and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal or a pipe may have an encoding without some letters
            with contextlib.suppress(OSError):  # of a fork's, which can't seek where it thinks it could
                stream.reconfigure(errors="backslashreplace")
    show_warnings_in_one_line()
    try:
        sys.exit(app(sys.argv[1:] or ["--help"], prog_name="retable", standalone_mode=False) or 0)
    except (UsageError, TyperException) as error:
        said = str(error) if isinstance(error, UsageError) else error.format_message()
        print(f"error: {in_one_line(said)}", file=sys.stderr)
        sys.exit(2)
    except Exception:
        from pipelines.config.errors import one_line_errors  # takes a second to import

        with one_line_errors():
            raise


if __name__ == "__main__":
    main()
