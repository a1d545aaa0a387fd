"""Test checkpoints and tokenizers of others: nothing in them runs, and no path leads out of their folder."""

import io
import json
import pickle
import struct

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from retable.core.errors import UsageError
from retable.exchange.checkpoint import Checkpoint
from retable.tokenizers.pretrained import read_tokenizer

CONFIG = {
    "model_type": "gpt2", "vocab_size": 10, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 1,
    "activation_function": "gelu_new",
}  # fmt: skip


@pytest.fixture
def checkpoint(tmp_path):
    """Return a folder with this configuration and other files."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def refused(folder, what=lambda checkpoint: checkpoint.weights) -> str:
    with pytest.raises(UsageError) as refusal:
        what(Checkpoint(str(folder)))
    message = str(refusal.value).replace(str(folder), "")
    assert "\n" not in message and "weights_only" not in message and "pickle" not in message
    return message


def test_a_pickle_among_the_weights_or_in_their_place(checkpoint, canary):
    torch.save({"wte.weight": canary}, checkpoint / "pytorch_model.bin")
    for _ in range(2):
        assert "pytorch_model.bin is refused: it contains more than weights" in refused(checkpoint)
        (checkpoint / "pytorch_model.bin").write_bytes(pickle.dumps(canary))


def saved(content: object) -> bytes:
    torch.save(content, file := io.BytesIO())
    return file.getvalue()


INDEX = "model.safetensors.index.json"
HUGE = b'{"a": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 4]}}'
OUTSIDE = ["../outside.safetensors", "/etc/passwd", "..", "a/b.bin", "", 3, None]
# Invalid files by name: their content and the expected error. A setting of config.json becomes part of the
# configuration that Hydra resolves.
LIES: dict[str, list[tuple[bytes | str, str]]] = {
    "pytorch_model.bin": [
        *((saved(held), "does not map names to weights") for held in ([1, 2], {"wte.weight": 3}, torch.zeros(2))),
        (b"", "pytorch_model.bin is damaged"),
    ],
    INDEX: [
        *((json.dumps({"weight_map": {"wte.weight": shard}}), "not a file in that folder") for shard in OUTSIDE),
        *((text, f"{INDEX} ") for text in ("[", "[]", "{}", '{"weight_map": []}', "[" * 100_000)),
    ],
    "model.safetensors": [
        (content, "model.safetensors is damaged")
        for content in (
            struct.pack("<Q", 2**62) + b"{}", struct.pack("<Q", len(HUGE)) + HUGE + b"0000", b"PK\x03\x04", b"",
        )
    ],
    "config.json": [
        *((text, "config.json is damaged") for text in ("[]", "3", "{", "[" * 100_000)),
        *(
            (json.dumps(CONFIG | {"n_embd": value, "n_inner": None}), "d_model")
            for value in ("${oc.env:HOME}", "${oc.decode:1}", 8.5, 10**13)
        ),
        *(
            (json.dumps(CONFIG | value), "config.json lacks settings of a GPT-2")
            for value in ({"n_embd": {"_target_": "os.system"}}, {"activation_function": ["gelu"]})
        ),
        *(
            (json.dumps(CONFIG | value), "config.json")
            for value in ({"n_layer": 10**12}, {"n_layer": "x"}, {"n_head": 12}, {"n_embd": None})
        ),
    ],
}  # fmt: skip


@pytest.mark.parametrize(("file", "content", "message"), [(file, *lie) for file, lies in LIES.items() for lie in lies])
def test_files_that_are_none(checkpoint, file, content, message):
    (checkpoint / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    (checkpoint / "tokenizer.json").write_text("{}")
    if file == "config.json":
        save_file({"wte.weight": torch.zeros(10, 8)}, checkpoint / "model.safetensors")
    line = refused(checkpoint, lambda opened: (opened.model, opened.weights))
    assert message in line and file in line
    if file == INDEX and "not a file in that folder" in message:
        # the file is not among the files on which the plan depends
        assert message in refused(checkpoint, lambda opened: opened.files)


def test_a_config_of_more_layers_than_weights(checkpoint):
    """Otherwise a million layers would be built before the missing weights are noticed."""
    (checkpoint / "config.json").write_text(json.dumps(CONFIG | {"n_layer": 10**6}))
    save_file({"wte.weight": torch.zeros(10, 8)}, checkpoint / "model.safetensors")
    assert "1000000 layers" in refused(checkpoint)


def test_code_that_a_checkpoint_brings(checkpoint, canary):
    """trust_remote_code: transformers would import it if the model has no class in transformers."""
    config = CONFIG | {"auto_map": {"AutoModel": "modeling_x.Mine", "AutoConfig": "modeling_x.Mine"}}
    (checkpoint / "config.json").write_text(json.dumps(config | {"model_type": "mine"}))
    (checkpoint / "modeling_x.py").write_text(f"import os\nos.system({canary.command!r})\n")
    assert "model_type=mine, but only gpt2" in refused(checkpoint)
    (checkpoint / "config.json").write_text(json.dumps(config))
    template = f"{{{{ cycler.__init__.__globals__.os.system({canary.command!r}) }}}}"
    config = {"chat_template": template, "auto_map": {"AutoTokenizer": ["modeling_x.Mine", None]}}
    (checkpoint / "tokenizer_config.json").write_text(json.dumps(config))
    (checkpoint / "vocab.txt").write_text("[UNK]\n[CLS]\n[SEP]\n[PAD]\n[MASK]\nman\n")
    assert Checkpoint(str(checkpoint)).tokenizer.encode("man") == [5]


@pytest.mark.parametrize(("file", "text"), [
    ("tokenizer.json", '{"version": "1.0", "model": {"type": "BPE\\u001b[2J", "vocab": {}, "merges": []}}'),
    ("tokenizer.json", '{"model":' * 10_000),
    ("tokenizer.json", "!!python/object/apply:os.system ['false']"),
])  # fmt: skip
def test_a_tokenizer_that_is_none(tmp_path, file, text):
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    (tmp_path / file).write_text(text)
    with pytest.raises(UsageError, match="cannot be read"):
        read_tokenizer(tmp_path)


def test_what_a_file_says_is_no_command_to_the_terminal(checkpoint, command, monkeypatch):
    (checkpoint / "config.json").write_text(json.dumps(CONFIG | {"model_type": "\x1b]0;mine\x07\x9b2J\n\u202egpt"}))
    monkeypatch.chdir(checkpoint)
    code, _, error = command("import", checkpoint, "grammar_tiny/mine")
    (line,) = error.splitlines()
    assert code == 2 and r"model_type=\x1b]0;mine\x07\x9b2J \u202egpt, but only gpt2" in line


def test_arrays_of_objects_are_refused_in_one_line(tmp_path, canary, capsys):
    from pipelines.config.errors import one_line_errors

    np.save(tmp_path / "objects.npy", np.array([canary], dtype=object), allow_pickle=True)
    (tmp_path / "pickled.npy").write_bytes(pickle.dumps(canary))
    for name in ("objects.npy", "pickled.npy"):
        with pytest.raises(SystemExit) as end, one_line_errors():
            np.load(tmp_path / name)
        (line,) = capsys.readouterr().err.splitlines()
        assert end.value.code == 2 and "units.npy contains pickled objects, which could run code" in line
