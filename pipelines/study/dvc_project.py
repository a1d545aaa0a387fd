"""Write a study's DVC project, `params.yaml` and `dvc.yaml` (`retable graph`), and new studies (`retable new`)."""

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
from retable.core.compressed import file_of
from retable.core.digests import digest, digest_of
from retable.core.errors import UsageError
from retable.core.hub import CHECKPOINT
from retable.planning.cell import Cell
from retable.planning.conf import Conf, strings
from retable.planning.graph import params_of, params_text, pipeline_of, pipeline_text
from retable.planning.study import Study, expand
from retable.reporting.names import display_name

READ = 8_000_000  # bytes that training reads in all epochs: about 2,000 steps of recipes for two million words
MOST = 10  # largest number of epochs: on 200 KB of text, a GPT was better after 10 epochs than after 5 or 20
MEASURED = ("task", "benchmark")  # config groups whose choices define metrics
DATA = "${oc.env:RETABLE_DATA,data}"  # the folder of data sets, as configurations write it


def graph() -> None:
    """Write `params.yaml` and `dvc.yaml` of the working folder's study, and remove obsolete stages from `dvc.lock`."""
    for path, text in graph_files(study_here(), Path.cwd(), files_of_study()).items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    _forget_stages()


def graph_files(study: Study, folder: Path, root: str) -> dict[Path, str]:
    """Return the texts of a study's `params.yaml` and `dvc.yaml`, by the files' paths in `folder`.

    `root` is the path from `folder` to the study's folder, with a final `/`; "" if the two folders are the same.
    """
    with composing():
        params = params_of(study, {place: data_of(cell) for place, cell in study.cells.items()}, display_name)
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
    """Write a new study into a folder.

    Args:
        folder: the folder; it is created if it does not exist.
        settings: keys of the study, as in corpus=mine or systems=kn5,lstm.

    Raises: UsageError: the folder has a study already, or the study has a mistake.
    """
    path = Path(folder, STUDY)
    if path.exists():
        raise UsageError(f"{path} exists; edit it, or choose another name")
    try:
        keys = {key: yaml.safe_load(value) for key, _, value in (each.partition("=") for each in settings)}
    except yaml.YAMLError as error:
        raise UsageError(f"{' '.join(settings)}: {error}; write settings as in corpus=mine systems=kn5,lstm") from None
    name, systems = Path(folder).resolve().name, keys.pop("systems", "kn5,lstm")
    of = systems.split(",") if isinstance(systems, str) else systems
    benchmarks = keys.pop("benchmarks", {"perplexity": "all"})
    configurations = Conf(CONF, own if (own := Path(folder, "conf")).is_dir() else None)
    content = keys | {"systems": [{"of": of}], "benchmarks": benchmarks}
    expand(configurations, name, content)  # raises UsageError for a mistake in the study, before a text is read
    size = training_bytes(configurations.read("corpus", keys["corpus"]), Path(folder)) if "corpus" in keys else None
    trained = [each for each in of if configurations.recipe(each).get("epochs") == 1]
    if size is not None and trained:
        epochs = min(max(round(READ / size), 1), MOST)
        counted = [each for each in of if each not in trained]
        content["systems"] = [{"of": counted}] * bool(counted) + [{"of": trained, "set": {"epochs": epochs}}]
        print(f"epochs: {epochs} for {', '.join(trained)}, since the training text has {size / 1e6:.2g} MB")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"# The purpose of study {name}.\n" + as_yaml(content, default_flow_style=None), encoding="utf-8")
    print(f"wrote {path}; run the study by: retable repro {folder}")


def training_bytes(corpus: Mapping[str, Any], folder: Path) -> int | None:
    """Return the size of a corpus's training text in bytes, or None if the text is not a file or does not exist yet.

    Paths in `corpus` are relative to `folder`, the study's folder.
    """
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
    """Return the paths of data sets and of other cells that a cell's configurations contain.

    The configurations of the cell's corpus, tokenizer, task and benchmarks are searched. The cell's checkpoint and file
    of word vectors are included.
    """
    values = {DATA: "data", "${text}": cell.corpus}
    values |= {"${tokens}": f"{cell.corpus}/{cell.tokenizer}"}
    paths = [path for part in _naming(cell) for text in strings(part) for path in _paths(text, values)]
    folders = {str(parent) for path in paths for parent in Path(path).parents}
    paths += _checkpoint(cell.settings.get("init", ""))
    vectors = cell.settings.get("embedding", "outputs/").replace(DATA, "data")
    if vectors and not vectors.startswith("outputs/"):
        paths.append(str(file_of(vectors)))
    return [path for path in dict.fromkeys(paths) if path not in folders]


def _checkpoint(init: str) -> list[str]:
    """Return a list with the folder of the checkpoint `init`, or [] if `init` is not a checkpoint's folder."""
    folder = init.removeprefix(CHECKPOINT)
    return [folder] if init.startswith(CHECKPOINT) and Path(folder).is_dir() else []


def _naming(cell: Cell) -> Iterator[Any]:
    """Yield the parts of a cell's configuration that may name files."""
    if cell.stage == "prepare":
        corpus = _container(f"corpus/{cell.corpus}")["corpus"]
        yield corpus
        yield from (conf().read("task", task) for task in corpus.get("tasks", ()))
    if cell.stage == "tokenize":
        yield conf().read("tokenizer", cell.tokenizer)
    set_by_hand = {key.lstrip("+~").partition(".")[0] for key in cell.settings if "." in key}
    for group in MEASURED:  # reading the files is far faster than composing a configuration
        if group in set_by_hand:
            yield configuration(cell).get(group)
        else:
            yield from (conf().read(group, name) for name in cell.choices(group))


@cache
def _container(name: str, *overrides: str) -> dict[str, Any]:
    resolved = OmegaConf.to_container(compose(name, overrides=list(overrides)), resolve=True)
    assert isinstance(resolved, dict)
    return {str(key): value for key, value in resolved.items()}


def _paths(text: str, values: Mapping[str, str]) -> list[str]:
    """Return a list with the path that a setting names, or [] if the setting is not a path.

    If the setting names a file in a cell, the path is the cell's folder.
    """
    if text.startswith(CHECKPOINT):  # for example, the checkpoint whose tokenizer is used
        return _checkpoint(text)
    for name, value in values.items():
        text = text.replace(name, value)
    if text.startswith("outputs/"):
        stage, corpus, *rest = text.removeprefix("outputs/").split("/")
        return ["/".join(["outputs", stage, corpus, *([] if stage == "prepare" else rest[:1])])]
    # A user's corpus may be anywhere. A text with `/` counts as a path if a file or folder of this name exists. Other
    # texts with `.` count as a path if a file of this name exists.
    own = os.path.exists(text) if "/" in text else "." in text and os.path.isfile(text)
    return [text] if own or text.startswith("data/") else []


# The modules of pipelines/ that write params.yaml and dvc.yaml.
PLANNING = ("config/project", "study/compose", "study/dvc_project")


def refresh_graph() -> None:
    """Write the study's `params.yaml` and `dvc.yaml` again if their sources have changed."""
    confs = [path for folder in filter(None, (CONF, own_conf())) for path in sorted(folder.rglob("*.yaml"))]
    configs = [*confs, Path(f"{files_of_study()}{STUDY}")]
    code = [*sorted(CODE["retable"].glob("planning/*.py")), *(CODE["pipelines"] / f"{name}.py" for name in PLANNING)]
    stamp = Path("work/graph.txt")

    def state() -> str:
        sources = [*configs, *code, *filter(Path.exists, map(Path, ("dvc.yaml", "params.yaml")))]
        written = [{str(path): digest(path) for path in sources}, _existing_files(configs)]
        return digest_of([*written, code_of_plans(Path.cwd())])

    if not stamp.exists() or stamp.read_text(encoding="utf-8") != state():
        graph()
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(state(), encoding="utf-8")


def _existing_files(configs: Sequence[Path]) -> list[str]:
    """Return the existing paths in configuration files.

    A path to a text that does not exist yet is left out, since the text is not an input yet.
    """
    named = {path for file in configs for path in re.findall(r"[\w./+-]*[\w+-][./][\w./+-]+", file.read_text("utf-8"))}
    return sorted(path for path in named if os.path.exists(path))
