"""The requests of Spark jobs to S3: executors report none, but what they read and wrote gives a lower bound."""

from __future__ import annotations

from slackwater.runs.costs.cost import RequestCounts
from slackwater.runs.record import RunRecord, RunState

# The manifest and the reference of a stage.
_STAGE_DOCUMENTS = 2
# `publication.json`; the manifest list of the commit; the metadata of the table, after the commit and after its tag.
_PUBLICATION_FILES = 4
# At least one data file, and the manifest that names it.
_TABLE_FILES = 2


def least_job_requests(record: RunRecord) -> RequestCounts | None:
    """Return the requests to S3 that the jobs of a published run have made at least; None for any other run.

    Each input object takes a GET, and each file that is written a PUT. Not in it are the reads of intermediate files,
    further requests for the same object, and listings.
    """
    if record.state is not RunState.PUBLISHED or record.publication is None:
        return None
    own = [stage.reference for stage in record.stages if stage.reference.manifest.startswith(record.run.prefix)]
    # A stage of an earlier attempt may have read some or all of the inputs. A rollback reads an earlier version.
    computed = [reference for reference in own if not reference.is_merged]
    has_read_inputs = bool(own) and len(computed) == len(record.stages) and record.rollback is None
    return RequestCounts(
        s3_gets=record.run.files if has_read_inputs else 0,
        s3_puts=sum(reference.files + _STAGE_DOCUMENTS for reference in own)
        + _PUBLICATION_FILES
        + (_TABLE_FILES if record.publication.rows else 0),
    )
