"""The check of the licences of installed packages."""

from __future__ import annotations

import tomllib
from email.message import Message

import pytest

from scripts.check_licences import ALLOWED, licences, problems

pytestmark = pytest.mark.unit

ALLOWED_HERE = {"licences": {"MIT": "permissive"}, "packages": {"old": {"licences": ["GPL-2.0"], "reason": "tests"}}}


def package(*fields):
    """The metadata of a package with these fields."""
    message = Message()
    for name, value in fields:
        message[name] = value
    return message


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([], set()),
        ([("License-Expression", "MPL-2.0 AND (Apache-2.0 OR MIT)")], {"MPL-2.0", "Apache-2.0", "MIT"}),
        # The expression counts, because classifiers are less exact.
        ([("License-Expression", "MIT"), ("Classifier", "License :: OSI Approved :: BSD License")], {"MIT"}),
        (
            [("Classifier", "License :: OSI Approved :: MIT License"), ("Classifier", "Typing :: Typed")],
            {"MIT License"},
        ),
        ([("Classifier", "License :: OSI Approved"), ("License", "MIT\nCopyright ...")], {"MIT"}),
        ([("License", "")], set()),
    ],
)
def test_licences_are_read_from_expression_classifiers_or_text(fields, expected):
    assert licences(package(*fields)) == expected


def test_only_allowed_licences_pass():
    assert list(problems({"new": {"MIT"}, "old": {"MIT", "GPL-2.0"}}, ALLOWED_HERE)) == []
    assert [item.partition(": not allowed")[0] for item in problems({"new": {"MIT", "GPL-2.0"}}, ALLOWED_HERE)] == [
        "new: GPL-2.0"
    ]
    [finding] = problems({"none": set()}, ALLOWED_HERE)
    assert finding.startswith("none: unknown: not allowed: remove the package, or add it")


def test_an_exception_of_one_package_is_none_of_another():
    assert len(list(problems({"other": {"GPL-2.0"}}, ALLOWED_HERE))) == 1


def test_each_allowed_licence_and_each_exception_has_a_reason():
    allowed = tomllib.loads(ALLOWED.read_text())
    assert all(len(reason.split()) >= 2 for reason in allowed["licences"].values())
    for item in allowed["packages"].values():
        assert item.keys() == {"licences", "reason"}
        assert len(item["reason"].split()) >= 2
