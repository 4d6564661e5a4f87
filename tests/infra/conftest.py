"""The app, synthesised once for all tests that only look at its templates."""

from __future__ import annotations

import pytest

from infra.app import ROOT
from infra.artefacts import Artefacts, build_artefacts
from infra.lint import context, stand_ins, synthesise
from infra.settings import Settings, load_settings
from tests.infra.assembly import Assembly


@pytest.fixture(scope="session")
def assembly(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    scratch = tmp_path_factory.mktemp("assembly")
    folder = scratch / "cdk.out"
    templates = synthesise(folder, settings=load_settings(context()), artefacts=stand_ins(scratch))
    return Assembly(folder, templates)


@pytest.fixture(scope="session")
def artefacts() -> Artefacts:
    """The real ones; built when they are not there."""
    return build_artefacts(root=ROOT, settings=Settings())


@pytest.fixture
def assembly_text(assembly: Assembly) -> str:
    """The assembly's manifest; it lists what a look-up in the account would have to tell."""
    return (assembly.folder / "manifest.json").read_text(encoding="utf-8")
