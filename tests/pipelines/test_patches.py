"""Test that the functions that `pipelines/config/patches.py` replaces are those for which the patches were written."""

import hashlib
import inspect

import pytest
from dvc.dvcfile import Lockfile
from dvc_objects.fs.local import FsspecLocalFileSystem
from hydra._internal.config_loader_impl import ConfigLoaderImpl

REPLACED = {
    ConfigLoaderImpl.get_group_options: "540fb02d260af47d",
    Lockfile.dump_stages: "be78a3c7bd285d86",
    FsspecLocalFileSystem.open: "93858abb04d3f3e2",
}


@pytest.mark.parametrize("function", REPLACED, ids=lambda function: function.__qualname__)
def test_a_library_has_the_function_that_is_replaced(function):
    """If this fails after an upgrade: read the new function, use a hook if there is one now, and update the
    checksum.
    """
    source = inspect.getsource(function).encode()
    assert hashlib.sha256(source).hexdigest()[:16] == REPLACED[function]
