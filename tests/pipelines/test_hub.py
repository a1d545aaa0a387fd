"""Test checkpoints of the Hugging Face hub: revisions, and records that contain the commit and no path of the cache.

The tests write the hub's cache as huggingface_hub does: the files of a snapshot are links to `blobs/`.
"""

import shlex
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml
from mlflow.tracking import MlflowClient
from omegaconf import OmegaConf

from pipelines.study import compose, dvc_project
from retable.core.artifacts import read_json, read_record, recorded_name
from retable.core.digests import digest
from retable.core.errors import UsageError
from retable.core.hub import locate
from retable.exchange.checkpoint import Checkpoint
from retable.planning.study import expand
from retable.training.weights import read_weights
from tests.exchange.cases import exported, system
from tests.exchange.test_sentence_transformers import headless, sentence_files
from tests.pipelines.conftest import track

OLD, NEW = "0123456789abcdef0123456789abcdef01234567", "fedcba9876543210fedcba9876543210fedcba98"
REFERENCES = {OLD: ["v1", "refs/pr/1"], NEW: ["main"]}


def put(cache: Path, name: str, commit: str, folder: Path, references: list[str]) -> None:
    """Add the files of a folder to the cache as a snapshot of a repository."""
    place = cache / f"models--{name.replace('/', '--')}"
    for file in filter(Path.is_file, folder.rglob("*")):
        blob, link = place / "blobs" / digest(file), place / "snapshots" / commit / file.relative_to(folder)
        for path in (blob, link):
            path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, blob)
        link.symlink_to(blob)
    for path in (place / "refs" / reference for reference in references):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(commit)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Make a cache with two commits of a BERT, which differ in their weights, and with a sentence encoder.

    As with HF_HUB_OFFLINE=1, the hub is not used.
    """
    folder = tmp_path_factory.mktemp("huggingface") / "hub"
    for commit, references in REFERENCES.items():
        objective, tokenizer = system("bert")
        objective.model.embedding.weight.data *= 1 + (commit == NEW)
        put(folder, "owner/bert", commit, exported(objective, tokenizer, folder.parent / commit), references)
    (encoder := folder.parent / "encoder").mkdir()
    headless(encoder)
    sentence_files(encoder, max_seq_length=8)
    put(folder, "owner/encoder", NEW, encoder, ["main"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(folder))
        patch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
        yield folder


@pytest.fixture(scope="module")
def labelled(project, cache):
    """Return a project with labelled sentences in SST-2's format."""
    folder = project.folder / "labelled/glue/SST-2"
    folder.mkdir(parents=True)
    rows = pd.DataFrame([("the cat sees a bird", 0), ("a bird sees it", 1)] * 8, columns=["sentence", "label"])
    for split in ("train", "dev", "test"):
        (rows[["sentence"]] if split == "test" else rows).to_csv(folder / f"{split}.tsv", sep="\t", index=False)
    return project


TUNED = ("finetune", "task=sst2", "recipe=bert/bert", "max_steps=1", "epochs=1", "optimizer.lr=0")
ENCODED = ("corpus=grammar_tiny", "tokenizer=pretrained")
GONE_ON = ("pretrain", *ENCODED, "recipe=bert/bert", "optimizer.lr=0", "++max_steps=1", "batches.length=12")
ADOPTED = ("pretrain", "corpus=sts", "recipe=encoders/sentence_encoder")
DATA = {"RETABLE_DATA": "labelled"}


def scale(weights: Path) -> float:
    """Return 1 for weights of the commit OLD, and 2 for those of NEW."""
    first = system("bert")[0].model.embedding.weight.detach()
    return float((read_weights(weights)["model.embedding.weight"] / first).mean())


@pytest.mark.parametrize(("revision", "commit"), [
    ("", NEW), ("@main", NEW), (f"@{NEW}", NEW), ("@v1", OLD), ("@refs/pr/1", OLD), (f"@{OLD}", OLD),
])  # fmt: skip
def test_a_revision_is_a_commit_a_tag_or_a_branch(cache, revision, commit):
    read = Checkpoint(f"owner/bert{revision}")
    assert read.name == f"owner/bert@{commit}"
    expected = system("bert")[0].model.embedding.weight * (1 + (commit == NEW))
    assert torch.equal(read.weights["model.embedding.weight"], expected)
    assert {recorded_name(path) for path in read.files} == {
        f"hf:owner/bert@{commit}/{name}" for name in ("config.json", "tokenizer.json", "model.safetensors")
    }
    assert Checkpoint(read.name).folder == read.folder


def test_a_folder_has_the_name_that_the_user_writes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("owner/bert@v1").mkdir(parents=True)
    assert locate("owner/bert@v1", ()) == ("owner/bert@v1", Path("owner/bert@v1"))
    assert recorded_name(Path("models--owner--bert/config.json")) == "models--owner--bert/config.json"
    legacy = Path(f"/cache/models--gpt2/snapshots/{OLD}/1_Pooling/config.json")
    assert recorded_name(legacy) == f"hf:gpt2@{OLD}/1_Pooling/config.json"


@pytest.mark.parametrize(("name", "message"), [
    ("owner/bert@v9", "owner/bert@v9 is not a folder and cannot be downloaded from the hub (Cannot find an appropriat"),
    (f"owner/bert@{OLD[::-1]}", f"owner/bert@{OLD[::-1]} is not a folder and cannot be downloaded from the hub (Cann"),
    ("owner/bert@", "owner/bert@ has no revision after @; write owner/bert@COMMIT, or owner/bert"),
    ("owner/bert@../x", "owner/bert@../x is not a folder and cannot be downloaded from the hub (Cannot find an app"),
    ("owner/other@v1", "owner/other@v1 is not a folder and cannot be downloaded from the hub (Cannot find an approp"),
    ("@v1", "@v1 is not a folder and cannot be downloaded from the hub ("),
])  # fmt: skip
def test_a_wrong_revision_is_one_line(labelled, name, message):
    for command in (
        (*TUNED, f"init=hf:{name}", "out=wrong"),
        (*ADOPTED, f"init=hf:{name}"),
        ("cli.main", "import", f"hf:{name}", "sts/wrong"),
        ("cli.main", "import", name, "sts/wrong"),
        ("tokenize", *ENCODED, f"tokenizer.train.path=hf:{name}"),
    ):
        assert labelled.refuse(*command, **DATA).startswith(f"error: {message}"), command


def test_a_revision_that_the_hub_does_not_have_is_one_line(cache, monkeypatch):
    class Hub(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(404)
            self.send_header("X-Error-Code", "RevisionNotFound")
            self.end_headers()

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        message = (
            r"^owner/bert has no revision v9 on the hub; write a commit, tag or branch of https://huggingface\.co/ow"
        )
        with pytest.raises(UsageError, match=message):
            locate("owner/bert@v9", ())
        server.shutdown()


def test_records_contain_the_commit_and_no_path_of_the_cache(labelled, cache):
    place = labelled.folder / "outputs"
    labelled.succeed(*TUNED, "init=hf:owner/bert@v1", "out=sst2/old-1", **DATA)
    labelled.succeed(*TUNED, "init=hf:owner/bert", "out=sst2/new-1", **DATA)
    labelled.succeed(*ADOPTED, "init=hf:owner/encoder", "system=staged")
    labelled.succeed("cli.main", "import", "hf:owner/encoder@main", "sts/imported")
    labelled.succeed("cli.main", "import", "owner/bert@v1", "grammar_tiny/imported")
    line = labelled.refuse(*GONE_ON, "tokenizer=word", "init=hf:owner/bert@v1", "system=on")
    advised = f"tokenizer.train.path=hf:owner/bert@{OLD}"
    assert f"first run python -m pipelines.tokenize_text corpus=grammar_tiny tokenizer=pretrained {advised}, " in line
    labelled.succeed("tokenize", *ENCODED, "tokenizer.train.path=hf:owner/bert@refs/pr/1")
    labelled.succeed(*GONE_ON, "init=hf:owner/bert@v1", "system=on")

    made = {
        "finetune/sst2/old-1": OLD, "finetune/sst2/new-1": NEW, "pretrain/sts/staged-1": NEW,
        "pretrain/grammar_tiny/on-1": OLD,
    }  # fmt: skip
    for cell, commit in made.items():
        name = f"owner/{'encoder' if 'sts' in cell.split('/') else 'bert'}@{commit}"
        assert OmegaConf.load(place / cell / "config.yaml").init.name == name
        digests = read_json(place / cell / "run.json")["digests"]
        assert digests[f"hf:{name}/model.safetensors"] == digest(Checkpoint(name).folder / "model.safetensors")
        run = MlflowClient(f"sqlite:///{labelled.folder}/mlflow.db").get_run(read_record(place / cell)["mlflow_run_id"])
        assert run.data.params["init.name"] == name
    imported = {"sts/imported": f"hf:owner/encoder@{NEW}", "grammar_tiny/imported": f"hf:owner/bert@{OLD}"}
    for cell, name in imported.items():
        run = read_json(place / "pretrain" / cell / "run.json")
        assert run["imported"] == name and f"{name}/config.json" in run["digests"]
    assert len(read_json(place / "pretrain/sts/imported/run.json")["digests"]) == 6
    assert scale(place / "finetune/sst2/old-1/model.safetensors") == 1
    assert scale(place / "finetune/sst2/new-1/model.safetensors") == 2
    tokens = OmegaConf.load(place / "tokenize/grammar_tiny/pretrained/config.yaml")
    assert tokens.tokenizer.train.path == f"hf:owner/bert@{OLD}"

    files = [path for path in labelled.folder.rglob("*") if path.is_file()]  # including records and MLflow's files
    assert {"config.yaml", "run.json", "mlflow.db", "old-1.record.json"} <= {path.name for path in files}
    wrong = [path for path in files if str(cache).encode() in path.read_bytes()]
    assert not wrong, wrong


def test_a_record_leads_to_the_same_weights_after_the_branch_has_moved(labelled, cache, tmp_path):
    branch = cache / "models--owner--bert/refs/main"
    labelled.succeed(*TUNED, "init=hf:owner/bert", "out=sst2/before-1", **DATA)
    before = labelled.folder / "outputs/finetune/sst2/before-1"
    name = OmegaConf.load(before / "config.yaml").init.name
    branch.write_text(OLD)
    try:
        labelled.succeed(*TUNED, "init=hf:owner/bert", "out=sst2/moved-1", **DATA)
        labelled.succeed(*TUNED, f"init=hf:{name}", "out=sst2/after-1", **DATA)
    finally:
        branch.write_text(NEW)
    moved, after = (before.with_name(f"{each}-1") for each in ("moved", "after"))
    assert digest(after / "model.safetensors") == digest(before / "model.safetensors")
    assert [scale(cell / "model.safetensors") for cell in (moved, after)] == [1, 2]


def test_a_study_names_a_revision_or_none(labelled, monkeypatch):
    """The plan of a cell contains the name as the study has it; by hand, the study's cell is made and not a try."""
    systems = [
        {"of": "bert", "as": f"{{init}}_{name}", "init": f"hf:owner/bert{revision}", "task": "sst2",
         "set": {"epochs": 1, "+max_steps": 1}}
        for name, revision in {"main": "", "tag": "@v1", "request": "@refs/pr/1", "commit": f"@{OLD}"}.items()
    ]  # fmt: skip
    study = expand(compose.conf(), "mine", {"corpus": "glue", "systems": systems})
    tuned = {cell.settings["system"]: cell for cell in study.cells.values() if cell.stage == "finetune"}
    assert [*tuned] == ["bert_main", "bert_tag", "bert_request", "bert_commit"]
    with compose.composing():
        plans = {name: yaml.safe_load(compose.plan_of(cell, study.cells)) for name, cell in tuned.items()}
        assert not any("bert" in path for cell in tuned.values() for path in dvc_project.data_of(cell))
    assert [plan["configuration"]["init"]["name"] for plan in plans.values()] == [
        "owner/bert", "owner/bert@v1", "owner/bert@refs/pr/1", f"owner/bert@{OLD}",
    ]  # fmt: skip
    params = track(labelled.folder, [*tuned.values()])
    for cell in (tuned["bert_main"], tuned["bert_tag"]):
        assert "a try" not in labelled.succeed("finetune", *shlex.split(cell.command)[3:], **DATA).stderr
    params.unlink()


def test_a_tokenizer_may_be_that_of_a_checkpoint_in_a_folder(monkeypatch, tmp_path):
    """A study depends on the folder, with and without `hf:`; it depends on no path for a checkpoint of the hub."""
    monkeypatch.chdir(tmp_path)
    exported(*system("bert"), tmp_path / "mine/bert")
    tokenizers = tmp_path / "conf/tokenizer"
    tokenizers.mkdir(parents=True)
    paths = {"plain": "mine/bert", "prefixed": "hf:mine/bert", "of_the_hub": "hf:owner/bert@v1"}
    for name, path in paths.items():
        settings = {"train": {"_target_": "retable.tokenizers.pretrained.load", "path": path}}
        (tokenizers / f"{name}.yaml").write_text(yaml.dump(settings))
    reads = {}
    for name in paths:
        content = {"corpus": "grammar_tiny", "tokenizer": name, "systems": [{"of": "lstm"}]}
        Path("study.yaml").write_text(yaml.dump(content))
        dvc_project.graph()
        (entry,) = yaml.safe_load(Path("params.yaml").read_text())["tokenize"].values()
        reads[name] = [path for path in entry["of"]["reads"] if "bert" in path]
    assert reads == {"plain": ["mine/bert"], "prefixed": ["mine/bert"], "of_the_hub": []}
