import pytest
import torch

from retable.core.errors import UsageError
from retable.training.precision import fastest_precision, multiply_in, require_precision


@pytest.mark.parametrize(("supported", "precision"), [(True, "bf16-mixed"), (False, "32-true")])
def test_only_a_gpu_takes_bf16_by_itself(supported, precision, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: supported)
    assert fastest_precision("auto") == fastest_precision("gpu") == precision
    assert fastest_precision("cpu") == "32-true"


@pytest.mark.parametrize(("built", "has"), [(True, True), (True, False), (False, False)])
def test_bf16_is_refused_on_a_processor_that_onednn_has_none_for(built, has, monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: built)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: has)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    require_precision("32-true", "cpu")
    require_precision("bf16-mixed", "auto")  # on the GPU
    if built and not has:
        with pytest.raises(UsageError, match="bf16-mixed: this processor does not support bf16; write 32-true"):
            require_precision("bf16-mixed", "cpu")
    else:
        require_precision("bf16-mixed", "cpu")


@pytest.mark.parametrize(("precision", "accelerator", "allowed"), [
    ("32-true", "gpu", False), ("bf16-mixed", "gpu", True), ("32-true", "cpu", True),
])  # fmt: skip
def test_full_precision_on_a_gpu_is_no_tf32(precision, accelerator, allowed, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    multiply_in(precision, accelerator)
    assert torch.backends.cudnn.allow_tf32 is allowed
