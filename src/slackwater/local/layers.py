"""Lambda layers unpacked once: the emulator would unpack them anew for every worker, seconds and 150 MB each time."""

from __future__ import annotations

import compileall
import hashlib
import io
import shutil
import sys
import tempfile
import threading
import zipfile
from pathlib import Path

_LOCK = threading.Lock()
_PATH_FILE = f"python/lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages/shared-layer.pth"
"""A place that the worker reads as Lambda does, so that the layer stands before everything else on its path."""


def shared_layer(layer: bytes, folder: Path) -> bytes:
    """Unpack a layer's zip below `folder`, unless it is there, and return a small zip that leads workers to it."""
    place = folder / hashlib.sha256(layer).hexdigest()[:16]
    with _LOCK:
        if not place.exists():
            _unpack(layer, place)
    stub = io.BytesIO()
    with zipfile.ZipFile(stub, "w") as archive:
        archive.writestr(_PATH_FILE, f"import sys; sys.path.insert(0, {str(place / 'python')!r})\n")
    return stub.getvalue()


def _unpack(layer: bytes, place: Path) -> None:
    """Unpack and compile aside, then rename: a folder that is there is whole."""
    place.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=place.parent))
    try:
        with zipfile.ZipFile(io.BytesIO(layer)) as archive:
            archive.extractall(aside)  # zipfile strips "..", drives and roots from names
        compileall.compile_dir(aside, quiet=2, stripdir=str(aside), prependdir=str(place))
        aside.rename(place)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
