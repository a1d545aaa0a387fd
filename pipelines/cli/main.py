"""The command `retable`: run studies, read their results, and use trained systems."""

import contextlib
import io
import os
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
    help="Retable: the results tables of language-model pretraining. CELL is the folder of a cell, its path in "
    "outputs/ (pretrain/ptb/kn5-1), the last part of this path if unique (kn5-1), or runs:/ID of MLflow. Run commands "
    "with a CELL in the project's folder; commands with a STUDY find the study by name from any folder.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Cell = Annotated[str, typer.Argument(metavar="CELL", show_default=False)]
Texts = Annotated[list[str], typer.Argument(metavar="TEXT...", show_default=False)]
OPTIONS = {  # the options of each decoding strategy
    "greedy": (),
    "beam": ("num_beams",),
    "sample": ("temperature", "top_k", "top_p", "typical_p"),
    "contrastive": ("top_k", "penalty_alpha"),
}
Seed = Annotated[int, typer.Option(help="seed of random sampling", min=0, max=2**32 - 1)]


Study = Annotated[
    str | None,
    typer.Argument(help="a name listed by `retable studies`, or a study's folder; default: the current folder's study",
                   show_default=False),
]  # fmt: skip


# `ANYWHERE` lists the commands that find the project by a study's name, or need no project. All other commands resolve
# paths in the current folder.
ANYWHERE = ("studies", "repro", "why", "new", "graph", "report", "tables", "bands", "fetch")


@app.callback()
def options(
    context: typer.Context,
    trust: Annotated[
        list[str] | None,
        typer.Option(metavar="PACKAGE", help="allow code of your installed package PACKAGE, such as models and tasks"),
    ] = None,
) -> None:
    """Apply the options that precede the command."""
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
    from retable.planning.conf import comment_of, read_yaml

    width = max(shutil.get_terminal_size().columns, 60)
    for study in study_names():
        with reading(path := STUDIES / study / STUDY, ValueError):
            first = read_yaml(path).get("question") or comment_of(path)
        print(textwrap.fill(f"{study:18}{first}", width, subsequent_indent=" " * 18, break_on_hyphens=False))


@app.command()
def repro(
    study: Study = None,
    jobs: Annotated[
        int | None, typer.Option(help="number of stages that run at a time; default: one per core or GPU")
    ] = None,
    engine: Annotated[str, typer.Option(help="where stages run: local, ray or slurm")] = "local",
) -> None:
    """Run the stale cells of a study and its report."""
    from retable.training.signals import end_at_once

    end_at_once()
    from pipelines.config.errors import one_line_errors

    with one_line_errors():
        from pipelines.execute.repro import repro

        code = repro(study, jobs, engine)
    raise typer.Exit(code)


@app.command()
def fetch(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", help="data sets, as listed by `retable fetch --list`")
    ] = None,
    study: Annotated[str | None, typer.Option(help="fetch the data sets that this study reads")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="fetch nothing; check sha256 of the files, and that addresses answer")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="fetch nothing; list data sets, with NAME in detail")] = False,
    offline: Annotated[
        bool, typer.Option("--offline", help="use no network; only a mirror (RETABLE_MIRROR) on this machine")
    ] = False,
    unverified: Annotated[
        bool, typer.Option("--unverified", help="also fetch files whose sha256 is not known, and print their sha256")
    ] = False,
) -> None:
    """Fetch data sets into the data folder.

    The data folder is RETABLE_DATA or data/. RETABLE_MIRROR is a folder or address with the same paths as the data
    folder; it is tried before the addresses in conf/data/.
    """
    from pipelines.config.errors import one_line_errors

    with one_line_errors():
        from pipelines.cli.fetch import fetch

        code = fetch(names or [], study, check, list_, offline, unverified)
    raise typer.Exit(code)


@app.command()
def why(
    name: Annotated[
        str | None, typer.Argument(metavar="[CELL|STUDY]", help="a cell, such as gpt-1, or a study", show_default=False)
    ] = None,
    study: Annotated[str | None, typer.Option(help="the cell's study; default: the current folder's study")] = None,
) -> None:
    """Explain why cells would or would not run again."""
    from pipelines.config.errors import one_line_errors

    with one_line_errors():
        from pipelines.study.explain import why

        why(name, study)


@app.command()
def new(folder: str, settings: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...")] = None) -> None:
    """Write a new study: FOLDER/study.yaml."""
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

        enter_project(study, show_folder=True)
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
        _report_changed(_cells_of_records(), "the report shows the earlier scores")
        print(f"wrote {render(study_here())}")


@app.command()
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="a system, a cell, a study or a commit")],
    b: Annotated[str, typer.Argument(metavar="B", help="a system, cell, study or commit to compare with A")],
    metric: Annotated[str | None, typer.Option(help="the only metric to compare, as in test/perplexity_word")] = None,
    study: Annotated[
        str | None, typer.Option(help="the study whose records are read; default: the cells in outputs/")
    ] = None,
) -> None:
    """Compare two systems, cells, studies or commits.

    For systems and cells, test whether A is better than B. For studies and commits, list the results that differ.
    """
    from pipelines.config.errors import one_line_errors

    with one_line_errors():
        from pipelines.cli.compare import print_comparison

        print_comparison(a, b, metric, study)


@app.command()
def sweep(
    sweeps: Annotated[list[str], typer.Argument(metavar="SWEEP...", help="folders in multirun/")],
) -> None:
    """Show the trials and figures of one or more sweeps."""
    from pipelines.config.errors import one_line_errors

    with one_line_errors():
        from pipelines.execute.grid import show

        show(sweeps)


@app.command()
def adopt(
    sweep: Annotated[str, typer.Argument(metavar="SWEEP", help="a folder in multirun/")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="print the settings and write nothing")] = False,
    name: Annotated[str | None, typer.Option("--as", metavar="NAME", help="write a new recipe of this name")] = None,
) -> None:
    """Write a sweep's best settings into its recipe."""
    from pipelines.config.errors import one_line_errors

    with one_line_errors():
        from pipelines.execute.adopt import adopt

        adopt(sweep, dry_run, name)


@app.command()
def tables(
    study: Study = None,
    latex: Annotated[bool, typer.Option("--latex", help="print LaTeX (booktabs), made from the records")] = False,
) -> None:
    """Print a study's tables as Markdown or LaTeX."""
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
        raise UsageError(f"{path} does not exist; make it by `retable repro`")
    with reading(path, ValueError):
        text = path.read_text(encoding="utf-8")
    print(text, end="")


@app.command()
def bands(
    study: Study = None,
    summarise: Annotated[bool, typer.Option("--summary", help="print a summary in Markdown, with exit code 0")] = False,
) -> None:
    """Check a study's tables against recorded bands.

    The exit code is 1 if a value lies outside its band.
    """
    from pipelines.study.bounds import bands, summary

    if summarise:
        print(summary(study))
        return
    raise typer.Exit(0 if bands(study) else 1)


@app.command()
def show(cell: Cell) -> None:
    """Show a cell: origin, abilities, scores.

    For a system, the scores of its evaluations are shown as well.
    """
    from retable.core.artifacts import main_scores, read_json, read_run
    from retable.core.stages import SYSTEM_STAGES
    from retable.inference.find import find_cell

    folder = find_cell(cell)
    _report_changed([folder], "the cell was made from the earlier text")
    run = read_run(folder)
    seed = "imported" if "imported" in run else f"seed {run['seed']}"
    _print(f"{folder}: {run['system']} on {run['corpus']}, {seed}")
    if run["stage"] in SYSTEM_STAGES:
        print(f"can        {', '.join(retable.load(folder).can)}")
    _print(f"made from  {', '.join(run['made_from']) or run.get('imported', 'nothing')}")
    for name, value in sorted(read_json(folder / "metrics.json").items()):
        _print(f"{name:31} {value:.6g}")
    *_, outputs = folder.resolve().parents[:3]
    place = folder.resolve().relative_to(outputs).as_posix()
    for path in sorted(outputs.glob("evaluate/*/*/run.json")):
        if place in read_run(path.parent)["made_from"]:
            _print(f"measured   {os.path.relpath(path.parent)}")
            for name, value in main_scores(read_json(path.with_name("metrics.json")), 8).items():
                _print(f"{name:31} {value:.6g}")


@app.command()
def score(
    cell: Cell,
    texts: Texts,
    end: Annotated[bool, typer.Option(help="score the end of a line as a token; --no-end for unfinished lines")] = True,
) -> None:
    """Rank lines of text by log-probability.

    Log-probabilities are natural logarithms; the most probable line is first.
    """
    system = _able(cell, "score")
    if not all(text.split() for text in texts):
        raise UsageError("one of the texts is empty; remove the empty text")
    rows = [(each.log_prob, len(each.tokens), each.text) for each in system.score(texts, end=end)]
    print(f"{'log-prob':>10}{'per token':>10}{'tokens':>8}  text")
    for log_prob, n, text in sorted(rows, key=lambda row: -row[0]):
        print(f"{log_prob:10.3f}{log_prob / n:10.3f}{n:8}  {text}")


@app.command()
def generate(
    cell: Cell,
    prompt: Annotated[str, typer.Argument(help="the beginning of the text")] = "",
    strategy: Literal["greedy", "beam", "sample", "contrastive"] = "greedy",
    max_new_tokens: int = 40,
    n: Annotated[int, typer.Option(help="strategy beam or sample: number of texts", min=1)] = 1,
    num_beams: Annotated[int | None, typer.Option(help="strategy beam: number of beams; default 4")] = None,
    temperature: Annotated[float | None, typer.Option(help="strategy sample: temperature; default 1")] = None,
    top_k: Annotated[
        int | None,
        typer.Option(
            help="choose among this number of most probable tokens; default: all for sample, 8 for contrastive"
        ),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            help="strategy sample: choose from the fewest tokens with this total probability; default 1 (all)"
        ),
    ] = None,
    typical_p: Annotated[
        float | None,
        typer.Option(
            help="strategy sample: choose from the most typical tokens with this total probability; default 1"
        ),
    ] = None,
    penalty_alpha: Annotated[
        float | None, typer.Option(help="strategy contrastive: weight of the penalty; default 0.6")
    ] = None,
    seed: Seed = 1,
    discriminator: Annotated[str | None, typer.Option(help="a cell that predicts labels of unfinished texts")] = None,
    label: Annotated[str, typer.Option(help="the discriminator's label that texts should have")] = "",
    special_tokens: Annotated[
        bool, typer.Option("--special-tokens", help="read names such as <extra_id_0> in the prompt as special tokens")
    ] = False,
) -> None:
    """Continue a text with a language model.

    A single text is printed token by token. Several texts are printed with their log-probabilities.
    """
    system = _able(cell, "score")
    if n != 1 and strategy not in ("beam", "sample"):
        raise UsageError(f"--n {n}: --strategy {strategy} generates one text; write --strategy beam or sample")
    options = {"num_beams": num_beams, "temperature": temperature, "top_k": top_k}
    options |= {"top_p": top_p, "typical_p": typical_p, "penalty_alpha": penalty_alpha}
    settings: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    for name in (name for name in settings if name not in OPTIONS[strategy]):
        others = " or ".join(other for other, names in OPTIONS.items() if name in names)
        raise UsageError(f"--strategy {strategy} does not use --{name.replace('_', '-')}; write --strategy {others}")
    if strategy == "sample":
        settings["seed"] = seed
    if discriminator is not None:
        settings |= {"discriminator": discriminator, "label": label}
    elif label:
        raise UsageError(f"--label {label} needs a discriminator; add --discriminator CELL")
    settings["special_tokens"] = special_tokens
    if strategy == "beam" or n > 1:
        for text, log_prob in system.alternatives(prompt, strategy, max_new_tokens=max_new_tokens, n=n, **settings):
            _print(f"{log_prob:9.3f}  {text}")
        return
    pieces = system.stream(prompt, strategy, max_new_tokens=max_new_tokens, **settings)
    _print(prompt if system.continues_prompt else "", end="")
    empty = True
    for piece in pieces:
        _print(piece, end="")
        empty = False
    print()
    if empty:
        print("note: the model ended the text at once; write another or a longer prompt", file=sys.stderr)


@app.command()
def sync() -> None:
    """Send waiting runs to MLflow; close killed runs.

    A run waits if MLflow did not accept it when the run ended. Runs of killed commands get the status KILLED.
    """
    from retable.tracking.run import end_killed, n_waiting, send_waiting

    sent = send_waiting()
    if ended := end_killed():
        print(f"closed as KILLED: {ended}")
    if left := n_waiting():
        raise UsageError(f"{left} of {left + sent} runs could not be sent; check the server in MLFLOW_TRACKING_URI")
    print(f"sent: {sent}" if sent else "no runs are waiting")


@app.command()
def predict(
    cell: Cell,
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="a csv, tsv, jsonl or parquet file, or - for standard input")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="a text instead of a file; separate the two texts of a pair by a tab")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="the file to write; default: standard output")] = None,
) -> None:
    """Predict labels, scores or tags for a file's rows."""
    from pipelines.cli.predict import predict

    predict(_able(cell, "predict"), file, text or [], out)


@app.command()
def tag(cell: Cell, texts: Texts) -> None:
    """Tag each word of the texts.

    Words are separated by spaces.
    """
    for words in _able(cell, "tag").tag(texts):
        _print(" ".join(f"{word}/{label}" for word, label in words))


@app.command()
def answer(cell: Cell, question: str, context: str) -> None:
    """Answer a question from a paragraph."""
    _print(_able(cell, "answer").answer(question, context))


@app.command()
def translate(
    cell: Cell,
    texts: Texts,
    attention: Annotated[
        Path | None, typer.Option(help="write the attention map to this .svg; with several texts, to FILE-1.svg, …")
    ] = None,
) -> None:
    """Translate the texts."""
    from retable.tokenizers.report import unknown_words

    system = _able(cell, "translate")
    if not all(text.split() for text in texts):
        raise UsageError("one of the texts is empty; remove the empty text")
    if strange := unknown_words(system.tokenizer, texts):
        raise UsageError(f"{system.folder}: unknown words {', '.join(strange)}; use words of the training text")
    if attention is None:
        _print("\n".join(system.translate(texts)))
        return
    if "attend" not in system.can:
        raise UsageError(f"{system.folder} has no attention to the source; leave --attention out")
    if attention.suffix != ".svg":
        raise UsageError(f"--attention {attention} must end in .svg; write {attention.stem or 'attention'}.svg")
    if not attention.parent.is_dir():
        raise UsageError(f"--attention {attention}: folder {attention.parent} does not exist; make it first")
    from retable.reporting.alignments import alignment_map
    from retable.reporting.figures import write_figure

    for number, translation in enumerate(system.attend(texts), 1):
        _print(translation.text)
        place = attention.with_stem(f"{attention.stem}-{number}") if len(texts) > 1 else attention
        write_figure(alignment_map(translation.source, translation.written, translation.weights), place)


@app.command()
def neighbours(
    cell: Cell,
    words: Annotated[list[str], typer.Argument(metavar="WORD...")],
    k: Annotated[int, typer.Option(min=1)] = 10,
) -> None:
    """List the nearest words by cosine similarity.

    CELL may also be a file of word vectors.
    """
    system = _able(cell, "neighbours")
    for word in words:
        near = ", ".join(f"{other} {cosine:.3f}" for other, cosine in system.neighbours(word, k))
        _print(f"{word}: {near}")


@app.command()
def describe(
    corpus: str,
    tokenizer: Annotated[str, typer.Argument()] = "word",
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD]...", help="words to tokenize step by step")
    ] = None,
    other: Annotated[str | None, typer.Option(help="a second prepared corpus; prints its coverage, too")] = None,
    characters: Annotated[int, typer.Option(help="largest number of characters read of each split")] = 10_000_000,
) -> None:
    """Describe a tokenizer and how it splits text.

    Print the tokenizer's tokens, its coverage of the corpus (and of --other), and step by step how it splits each WORD.
    """
    from pipelines.cli.describe import describe

    describe(corpus, tokenizer, words or [], other, characters)


@app.command()
def submit(
    system: Annotated[str, typer.Argument(help="a system trained on GLUE's tasks")],
    corpus: Annotated[str, typer.Option(help="corpus of the system's cells")] = "glue",
    seed: int = 1,
    test: Annotated[
        list[str] | None, typer.Option(help="a test set, such as RTE; default: all, which the server requires")
    ] = None,
) -> None:
    """Write test predictions for the GLUE server."""
    from pipelines.cli.submit import SETS, submit

    submit(system, corpus, seed, test or list(SETS))


@app.command()
def export(
    cell: Cell,
    place: Annotated[Path, typer.Argument(help="a file .arpa, .txt or .bin, or a folder for a checkpoint")],
    license: Annotated[str, typer.Option(help="license for the model card, by its name on the Hub")] = "apache-2.0",
) -> None:
    """Export a model: ARPA, word vectors, Hugging Face.

    An n-gram model becomes an ARPA file. Word vectors become a file in word2vec's text (.txt) or binary (.bin) format.
    A GPT, BERT, ELECTRA or T5, or a classifier or tagger based on one, becomes a folder that the library transformers
    can load.
    """
    from pipelines.cli.export import export_cell

    export_cell(cell, place, license)


@app.command("import")
def import_(
    source: Annotated[str, typer.Argument(help="a file .arpa, .txt or .bin; a checkpoint's folder or Hub name")],
    name: Annotated[str, typer.Argument(metavar="CORPUS/NAME", help="name of the new cell in outputs/<stage>/")],
) -> None:
    """Import a model: ARPA, word vectors, Hugging Face.

    Read an ARPA file, a file of word vectors in word2vec's format, or a checkpoint of a GPT, BERT or T5.
    """
    from pipelines.cli.import_ import import_cell

    print(import_cell(source, name))


@app.command()
def register(
    cell: Cell,
    name: Annotated[str, typer.Option(help="name of the model; default: <corpus>-<cell>")] = "",
) -> None:
    """Register a cell as a model in MLflow.

    `mlflow models predict` and `mlflow models serve` can run the model.
    """
    from retable.inference import served

    system = retable.load(cell)
    _report_changed([system.folder], "the model was trained on the earlier text")
    name = name or "-".join(system.folder.parts[-2:])
    model = f"models:/{name}/{served.register(system, name)}"
    print(f"registered {system.folder} as {model}; mlflow models predict -m {model} --env-manager local -i input.json")


def _print(text: str, end: str = "\n") -> None:
    """Print text from a cell, with control characters escaped: an imported cell may contain terminal commands."""
    print(visible(text), end=end, flush=True)


def _cells_of_records() -> list[Path]:
    """Return the cells whose scores a study's report shows."""
    from pipelines.config.project import files_of_study

    records = Path(f"{files_of_study()}records")
    return [Path("outputs", path.relative_to(records).with_suffix("")) for path in sorted(records.rglob("*.json"))]


def _report_changed(cells: Sequence[Path], note: str) -> None:
    """Print a line with `note` to standard error for each input file that changed after its cell was made."""
    from retable.core.artifacts import changed_inputs

    for path, place in sorted(changed_inputs(cells).items()):
        line = f"stale: {os.path.relpath(path)} has changed since {place} was made; {note}"
        print(in_one_line(line), file=sys.stderr)


def _able(cell: str, ability: str) -> Any:
    """Load a cell's system; raise UsageError if the system lacks `ability`."""
    system = retable.load(cell)
    if ability not in system.can:
        raise UsageError(f"{system.folder} cannot {ability}; it can {', '.join(system.can)}")
    return system


def main() -> None:
    """Run the command. For a user's mistake, one line is printed to standard error, and the exit code is 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # the encoding of a terminal or pipe may lack some letters
            with contextlib.suppress(OSError):  # the stream of a forked process may fail to seek
                stream.reconfigure(errors="backslashreplace")
    show_warnings_in_one_line()
    try:
        sys.exit(app(sys.argv[1:] or ["--help"], prog_name="retable", standalone_mode=False) or 0)
    except (UsageError, TyperException) as error:
        message = str(error) if isinstance(error, UsageError) else error.format_message()
        print(f"error: {in_one_line(message)}", file=sys.stderr)
        sys.exit(2)
    except Exception:
        from pipelines.config.errors import one_line_errors  # takes a second to import

        with one_line_errors():
            raise


if __name__ == "__main__":
    main()
