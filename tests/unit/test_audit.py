"""`scripts/audit`, with a program in the place of pip-audit."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

SCRIPT = Path(__file__).parents[2] / "scripts" / "audit"
UNREACHABLE = "requests.exceptions.ConnectionError: Failed to resolve 'api.osv.dev'"


@pytest.fixture
def audit(tmp_path):
    """Run the audit with an answer and an exit code of pip-audit for one lock file; return the code and the output."""

    def run(answer="", *, of="layer", code=0, ignore="", **environment):
        for folder in ("scripts", "requirements", ".venv/bin"):
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        shutil.copy(SCRIPT, tmp_path / "scripts")
        (tmp_path / "requirements" / "audit-ignore.txt").write_text(ignore)
        program = tmp_path / ".venv" / "bin" / "pip-audit"
        program.write_text(
            '#!/bin/sh\necho "$@" >> calls\n'
            f'case "$*" in *requirements/{of}.txt) echo "{answer}" >&2; exit {code};; esac\n'
        )
        program.chmod(0o755)
        environment = {"PATH": "/usr/bin:/bin", **environment}
        script = str(tmp_path / "scripts" / "audit")
        done = subprocess.run([script], env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    return run


def test_nothing_is_said_when_nothing_is_found(audit, tmp_path):
    assert audit() == (0, "")
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call.rpartition("/")[2] for call in calls] == [f"{lock}.txt" for lock in LOCKS]
    assert all("--strict" in call for call in calls)


def test_a_vulnerability_of_any_lock_fails_and_the_others_are_audited_too(audit, tmp_path):
    code, output = audit("urllib3 1.26.4 PYSEC-2021-108", of="dev", code=1)
    assert code == 1
    assert "requirements/dev.txt: update these packages" in output
    assert "PYSEC-2021-108" in output
    assert len((tmp_path / "calls").read_text().splitlines()) == len(LOCKS)


def test_without_the_database_the_audit_fails_in_one_line_unless_the_variable_allows_it(audit):
    code, output = audit(UNREACHABLE, of="dev", code=1)
    assert (code, len(output.splitlines())) == (1, 1)
    assert "cannot be reached, so dev.txt was not audited (SLACKWATER_AUDIT=optional accepts this)" in output
    assert audit(UNREACHABLE, of="dev", code=1, SLACKWATER_AUDIT="optional") == (0, output)
    assert audit(UNREACHABLE, of="dev", code=1, SLACKWATER_AUDIT="never")[0] == 1


def test_the_variable_excuses_no_vulnerability(audit):
    assert audit("PYSEC-2021-108", of="dev", code=1, SLACKWATER_AUDIT="optional")[0] == 1


def test_what_is_ignored_has_a_date_and_a_reason(audit, tmp_path):
    assert audit(ignore="# comment\nPYSEC-1 2026-11-23 only on Windows\nCVE-2 2026-11-23 not called\n") == (0, "")
    assert "--ignore-vuln PYSEC-1 --ignore-vuln CVE-2" in (tmp_path / "calls").read_text()
    for wrong in ("PYSEC-1", "PYSEC-1 2026-11-23", "PYSEC-1 soon only on Windows"):
        code, output = audit(ignore=wrong)
        assert (code, "audit-ignore.txt: PYSEC-1: write the date" in output) == (1, True)


LOCKS = ("dev", "layer", "archive", "archive-snowflake", "airflow", "bench")


def test_every_lock_file_of_packages_that_are_installed_is_audited():
    locks = {path.stem for path in (SCRIPT.parents[1] / "requirements").glob("*.txt")}
    # A file of URLs, the constraints that airflow.txt is made from, and the list of what is ignored.
    assert locks - {"dynamodb-local", "mwaa-3.0.6-constraints", "audit-ignore"} == set(LOCKS)
