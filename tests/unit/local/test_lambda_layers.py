"""Lambda layers are unpacked once and shared by workers."""

from __future__ import annotations

import io
import site
import sys
import zipfile

import pytest

from slackwater.errors import CloudError
from slackwater.local.lambda_layers import check_layers_load, shared_layer
from slackwater.local.layout import ARCHITECTURE, PYTHON

pytestmark = pytest.mark.unit

OTHER = {"x86_64": "arm64", "arm64": "x86_64"}[ARCHITECTURE]


def zipped(files):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, source in files.items():
            archive.writestr(name, source)
    return content.getvalue()


def test_a_layer_is_unpacked_once_and_comes_first_on_a_workers_path(tmp_path, monkeypatch):
    layer = zipped({"python/some_module.py": "VALUE = 1\n"})
    stub = shared_layer(layer, tmp_path / "layers")
    (unpacked,) = (tmp_path / "layers").iterdir()
    module = unpacked / "python" / "some_module.py"
    written = module.stat().st_mtime_ns
    assert shared_layer(layer, tmp_path / "layers") == stub
    assert module.stat().st_mtime_ns == written
    assert list(module.parent.glob("__pycache__/some_module.*.pyc"))
    with zipfile.ZipFile(io.BytesIO(stub)) as archive:
        archive.extractall(tmp_path / "worker")
    monkeypatch.setattr(sys, "path", list(sys.path))
    (packages,) = (tmp_path / "worker" / "python" / "lib").glob("*/site-packages")
    site.addsitedir(str(packages))
    assert sys.path[0] == str(unpacked / "python")


@pytest.mark.parametrize(("runtime", "architecture"), [("python3.99", ARCHITECTURE), (f"python{PYTHON}", OTHER)])
def test_a_function_whose_layer_is_for_another_python_or_processor_fails_with_the_remedy(runtime, architecture):
    layers = [{"Arn": "layer"}]
    function = {"FunctionName": "list-files", "Runtime": runtime, "Architectures": [architecture], "Layers": layers}
    with pytest.raises(CloudError, match=rf"list-files needs {runtime} on {architecture}.*slackwater deploy"):
        check_layers_load(function)
    check_layers_load({**function, "Layers": []})
    check_layers_load({**function, "Runtime": "nodejs22.x"})
    check_layers_load({**function, "Runtime": f"python{PYTHON}", "Architectures": [ARCHITECTURE]})


def test_layers_have_separate_folders_and_a_broken_layer_leaves_none(tmp_path):
    first, second = (shared_layer(zipped({"python/a.py": source}), tmp_path) for source in ("A = 1\n", "A = 2\n"))
    assert first != second
    with pytest.raises(zipfile.BadZipFile):
        shared_layer(b"no zip", tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
