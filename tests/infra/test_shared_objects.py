"""Shared objects that AWS cannot load are found when an artefact is built."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import bcrypt
import pydantic_core
import pytest

from infra.artefacts import lambda_target, spark_target
from infra.packing import BuildFailed, Target, check_shared_objects, find_unloadable
from infra.settings import Settings
from slackwater.local.layout import ARCHITECTURE, PYTHON

pytestmark = pytest.mark.infra

HERE = Target(
    python=PYTHON,
    machine={"x86_64": "x86_64", "arm64": "aarch64"}[ARCHITECTURE],
    wheels="manylinux_2_28",
    glibc=(2, 34),
)
"""What the wheels of this machine are for."""
OTHER_PYTHON = "3.13" if PYTHON == "3.12" else "3.12"
OTHER_MACHINE = {"x86_64": "aarch64", "aarch64": "x86_64"}[HERE.machine]
MACHINE_CODES = {"x86_64": 62, "aarch64": 183}


def shared_object(package: str) -> Path:
    """The one shared object in the folder of an installed package."""
    [path] = Path(package).parent.glob("*.so")
    return path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The content of an artefact: one extension for this Python, and one for the stable ABI."""
    for source in (shared_object(pydantic_core.__file__), shared_object(bcrypt.__file__)):
        folder = tmp_path / source.parent.name
        folder.mkdir()
        shutil.copy(source, folder)
    (tmp_path / "bcrypt" / "notes.so.txt").write_text("no shared object")
    return tmp_path


def replace_bytes(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))


def test_shared_objects_for_the_target_are_accepted(tree: Path) -> None:
    assert list(find_unloadable(tree, HERE)) == []


def test_an_extension_for_another_python_is_named_unless_it_uses_the_stable_abi(tree: Path) -> None:
    [problem] = find_unloadable(tree, replace(HERE, python=OTHER_PYTHON))
    assert problem.startswith("pydantic_core/_pydantic_core.cpython-")
    assert problem.endswith(f"is built for CPython {PYTHON}")


def test_an_extension_for_python_without_its_lock_is_refused(tree: Path) -> None:
    path = tree / "pydantic_core" / shared_object(pydantic_core.__file__).name
    digits = PYTHON.replace(".", "")
    path.rename(path.with_name(path.name.replace(f"-{digits}-", f"-{digits}t-")))
    [problem] = find_unloadable(tree, HERE)
    assert problem.endswith(f"is built for CPython {PYTHON}t")


def test_a_shared_object_for_another_processor_is_named_even_without_a_tag_in_its_name(tree: Path) -> None:
    path = tree / "bcrypt" / shared_object(bcrypt.__file__).name
    content = bytearray(path.read_bytes())
    content[18:20] = MACHINE_CODES[OTHER_MACHINE].to_bytes(2, "little")  # the ELF header's e_machine
    path.write_bytes(content)
    assert list(find_unloadable(tree, HERE)) == [f"bcrypt/{path.name} is built for {OTHER_MACHINE}"]


def test_a_shared_object_that_needs_a_newer_c_library_is_named(tree: Path) -> None:
    path = tree / "bcrypt" / shared_object(bcrypt.__file__).name
    replace_bytes(path, b"\0GLIBC_2.17\0" if HERE.machine == "aarch64" else b"\0GLIBC_2.14\0", b"\0GLIBC_2.35\0")
    assert list(find_unloadable(tree, HERE)) == [f"bcrypt/{path.name} needs glibc 2.35"]
    assert list(find_unloadable(tree, replace(HERE, glibc=(2, 35)))) == []


def test_a_file_that_is_no_elf_file_is_named(tree: Path) -> None:
    (tree / "libtext.so.1.2").write_text("INPUT(libother.so)")
    [problem] = find_unloadable(tree, HERE)
    assert problem.startswith("libtext.so.1.2 is no ELF file")


def test_the_targets_are_the_images_of_lambda_and_emr() -> None:
    settings = Settings(lambda_python="3.11", spark_python="3.13", architecture="arm64")
    assert str(lambda_target(settings)) == "Python 3.11 on aarch64 with glibc 2.26"
    assert str(lambda_target(Settings())) == "Python 3.13 on x86_64 with glibc 2.34"
    assert str(spark_target(settings)) == "Python 3.13 on aarch64 with glibc 2.34"


def test_a_build_fails_with_the_files_and_the_remedy(tree: Path) -> None:
    with pytest.raises(BuildFailed) as failed:
        check_shared_objects("layer.zip", tree, replace(HERE, machine=OTHER_MACHINE), lock="requirements/layer.txt")
    message = str(failed.value)
    assert f"on {OTHER_MACHINE} with glibc 2.34 cannot load 2 files of layer.zip" in message
    assert "bcrypt/_bcrypt.abi3.so is built for" in message
    assert "requirements/layer.txt" in message
    assert "`make lock`" in message
