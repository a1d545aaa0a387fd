"""A study → its DVC project: `params.yaml` and `dvc.yaml`, written by `retable graph`."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hydra import compose
from omegaconf import OmegaConf

from pipelines.config.patches import dvc_writes_whole
from pipelines.config.project import CHECKOUT, CODE, CONF, STUDY, code_of_plans, files_of_study, own_conf
from pipelines.study.compose import as_yaml, composing, conf, configuration, study_here
from pipelines.study.dvc_lock import LOCK, noted_stages
from retable.core.digests import digest, digest_of
from retable.core.errors import UsageError
from retable.planning.cell import CHECKPOINT, Cell
from retable.planning.conf import Conf, strings
from retable.planning.graph import params_of, params_text, pipeline_of, pipeline_text
from retable.planning.study import Study, expand

READ = 8_000_000  # bytes of text that a training reads: about 2,000 steps of the recipes sized for two million words
MOST = 10  # epochs: on 200 KB a GPT was better after 10 than after 5, and worse after 20
MEASURED = ("task", "benchmark")  # the groups of what leaves units of a metric


def graph() -> None:
    """Write `params.yaml` and `dvc.yaml` of the study that the working folder is the DVC project of, and remove from
    `dvc.lock` the stages that it no longer has."""
    for path, text in graph_files(study_here(), Path.cwd(), files_of_study()).items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    _forget_stages()


def graph_files(study: Study, folder: Path, root: str) -> dict[Path, str]:
    """The texts of `params.yaml` and `dvc.yaml` of a study, by their paths in its folder."""
    with composing():
        params = params_of(study, {place: data_of(cell) for place, cell in study.cells.items()})
    library = "code/retable"
    if CHECKOUT is not None and CHECKOUT in (folder, folder.parent.parent):
        library = os.path.relpath(CHECKOUT / "src/retable", folder)
    pipeline = pipeline_of(study, params, code_of_plans(folder), library, root)
    file = f"{root}{STUDY}"
    return {Path("params.yaml"): params_text(params, file), Path("dvc.yaml"): pipeline_text(pipeline, file)}


def _forget_stages() -> None:
    from dvc.fs import localfs
    from dvc.utils.serialize import modify_yaml  # as DVC itself writes it

    dvc_writes_whole()
    params = yaml.load(Path("params.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
    known = {"plan", "report", *(f"{stage}@{key}" for stage in params for key in params[stage])}
    if gone := noted_stages().keys() - known:
        with modify_yaml(LOCK, fs=localfs) as remembered:
            for name in gone:
                del remembered["stages"][name]


def new(folder: str, settings: Sequence[str]) -> None:
    """Write a study to start from into a folder. UsageError if it has one already, or the study has a mistake."""
    path = Path(folder, STUDY)
    if path.exists():
        raise UsageError(f"{path} exists; edit it, or choose another name")
    try:
        given = {key: yaml.safe_load(value) for key, _, value in (each.partition("=") for each in settings)}
    except yaml.YAMLError as error:
        raise UsageError(f"{' '.join(settings)} can't be read: {error}; write corpus=mine systems=kn5,lstm") from None
    name, systems = Path(folder).resolve().name, given.pop("systems", "kn5,lstm")
    of = systems.split(",") if isinstance(systems, str) else systems
    benchmarks = given.pop("benchmarks", {"perplexity": "all"})
    found = Conf(CONF, own if (own := Path(folder, "conf")).is_dir() else None)
    said = given | {"systems": [{"of": of}], "benchmarks": benchmarks}
    expand(found, name, said)  # a mistake is found before a text is read
    size = training_bytes(found.says("corpus", given["corpus"]), Path(folder)) if "corpus" in given else None
    trained = [each for each in of if found.recipe(each).get("epochs") == 1]
    if size is not None and trained:
        epochs = min(max(round(READ / size), 1), MOST)
        counted = [each for each in of if each not in trained]
        said["systems"] = [{"of": counted}] * bool(counted) + [{"of": trained, "set": {"epochs": epochs}}]
        print(f"epochs: {epochs} for {', '.join(trained)}, as the text to train on has {size / 1e6:.2g} MB")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"# What study {name} is for.\n" + as_yaml(said, default_flow_style=None), encoding="utf-8")
    print(f"{path} is written; retable repro {folder} makes the study")


def training_bytes(corpus: Mapping[str, Any], folder: Path) -> int | None:
    """Return the size of a corpus's training text, if that is a file; None for another corpus, such as that of the
    embedded language, and for a file that does not exist yet. Paths start in the study's folder."""
    write: Any = OmegaConf.to_container(OmegaConf.create(corpus.get("write", {})), resolve=True)
    target = write.get("_target_")
    if target == "retable.corpora.cut.write_cut":
        source, share = write.get("source"), write.get("train", 1.0)
    elif target == "retable.corpora.text.write_corpus":
        source, share = write.get("train"), 1.0
    else:
        return None
    path = folder / str(source)
    return max(round(path.stat().st_size * float(share)), 1) if path.is_file() else None


def data_of(cell: Cell) -> list[str]:
    """The paths that a cell's corpus, tokenizer, task or benchmarks name: data sets, and folders of other cells."""
    values = {"${oc.env:RETABLE_DATA,data}": "data", "${text}": cell.corpus}
    values |= {"${tokens}": f"{cell.corpus}/{cell.tokenizer}"}
    found = [path for said in _naming(cell) for text in strings(said) for path in _paths(text, values)]
    folders = {str(parent) for path in found for parent in Path(path).parents}
    found += _checkpoint(cell.settings.get("init", ""))
    return [path for path in dict.fromkeys(found) if path not in folders]


def _checkpoint(init: str) -> list[str]:
    """The folder of a checkpoint that a cell begins with; none of the hub's, which are fetched."""
    folder = init.removeprefix(CHECKPOINT)
    return [folder] if init.startswith(CHECKPOINT) and Path(folder).is_dir() else []


def _naming(cell: Cell) -> Iterator[Any]:
    """What of a cell's configuration names files."""
    if cell.stage == "prepare":
        corpus = _container(f"corpus/{cell.corpus}")["corpus"]
        yield corpus
        yield from (conf().says("task", task) for task in corpus.get("tasks", ()))
    if cell.stage == "tokenize":
        yield conf().says("tokenizer", cell.tokenizer)
    set_by_hand = {key.lstrip("+~").partition(".")[0] for key in cell.settings if "." in key}
    for group in MEASURED:  # to compose them all takes far longer than to read them
        if group in set_by_hand:
            yield configuration(cell).get(group)
        else:
            yield from (conf().says(group, name) for name in cell.choices(group))


@cache
def _container(name: str, *overrides: str) -> dict[str, Any]:
    resolved = OmegaConf.to_container(compose(name, overrides=list(overrides)), resolve=True)
    assert isinstance(resolved, dict)
    return {str(key): value for key, value in resolved.items()}


def _paths(text: str, values: Mapping[str, str]) -> list[str]:
    """The path that a setting names: of a file in a cell that of the cell. None if it names no file."""
    for name, value in values.items():
        text = text.replace(name, value)
    if text.startswith("outputs/"):
        stage, corpus, *rest = text.removeprefix("outputs/").split("/")
        return ["/".join(["outputs", stage, corpus, *([] if stage == "prepare" else rest[:1])])]
    # A corpus of one's own may stand anywhere: a file by its path or its ending, or a folder by its path.
    own = os.path.exists(text) if "/" in text else "." in text and os.path.isfile(text)
    return [text] if own or text.startswith("data/") else []


PLANNING = (
    "config/project",
    "study/compose",
    "study/dvc_project",
)  # the files of pipelines/ that params.yaml and dvc.yaml are made by


def refresh_graph() -> None:
    """Write the study's `params.yaml` and `dvc.yaml` again if what they are made of has changed."""
    confs = [path for folder in filter(None, (CONF, own_conf())) for path in sorted(folder.rglob("*.yaml"))]
    said = [*confs, Path(f"{files_of_study()}{STUDY}")]
    code = [*sorted(CODE["retable"].glob("planning/*.py")), *(CODE["pipelines"] / f"{name}.py" for name in PLANNING)]
    stamp = Path("work/graph.txt")

    def state() -> str:
        sources = [*said, *code, *filter(Path.exists, map(Path, ("dvc.yaml", "params.yaml")))]
        written = [{str(path): digest(path) for path in sources}, _files_there(said)]
        return digest_of([*written, code_of_plans(Path.cwd())])

    if not stamp.exists() or stamp.read_text(encoding="utf-8") != state():
        graph()
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(state(), encoding="utf-8")


def _files_there(said: Sequence[Path]) -> list[str]:
    """The paths that configurations name and that are there: a text of one's own is an input once it is."""
    named = {path for file in said for path in re.findall(r"[\w./+-]*[\w+-][./][\w./+-]+", file.read_text("utf-8"))}
    return sorted(path for path in named if os.path.exists(path))
