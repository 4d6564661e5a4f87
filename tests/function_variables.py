"""The environment variables of the Lambda functions, without those of Powertools and of Lambda itself."""

from __future__ import annotations

_WAKE = "AWAIT_INPUTS_FUNCTION"
_COSTS = ("APPLICATION_ID", "ARCHITECTURE", "FUNCTION_MB")
VARIABLES = {
    "receive-events": {
        *("RAW_BUCKET", "TOKEN_TABLE", "FILE_TABLE", "STATE_TABLE", "PROJECT_URI"),
        *("EVENT_QUEUE_URL", "STATE_QUEUE_URL", _WAKE),
    },
    "store-events": {"RAW_BUCKET", "PROJECT_URI"},
    "redrive-events": {"RAW_BUCKET", "STATE_TABLE", "PROJECT_URI", "STATE_QUEUE_URL"},
    "list-files": {
        *("EXCHANGE_BUCKET", "FILE_TABLE", "STATE_TABLE", "PROJECT_URI", "OUTBOUND_ALLOW"),
        "STATE_QUEUE_URL",
    },
    "fetch-file": {
        *("RAW_BUCKET", "FILE_TABLE", "STATE_TABLE", "PROJECT_URI", "OUTBOUND_ALLOW", "ARRIVAL_QUEUE_URL"),
        *("JOB_NETWORK", "STATE_QUEUE_URL"),
    },
    "update-raw-tables": {"RAW_BUCKET", "RAW_DATABASE", "WAREHOUSE_BUCKET", "FILE_TABLE", "PROJECT_URI"},
    "remove-stale": {"RAW_BUCKET", "EXCHANGE_BUCKET", "FILE_TABLE", "PROJECT_URI", "RAW_TABLES_FUNCTION"},
    "pack-objects": {"RAW_BUCKET", "FILE_TABLE", "PROJECT_URI", "RAW_TABLES_FUNCTION"},
    "freeze-inputs": {
        *("RAW_BUCKET", "EXCHANGE_BUCKET", "FILE_TABLE", "RUN_TABLE", "STATE_TABLE", "KEPT_DAYS"),
        "INTERMEDIATE_DAYS",
    },
    "await-inputs": {
        *("RAW_BUCKET", "FILE_TABLE", "RUN_TABLE", "STATE_TABLE", "PROJECT_URI", "ARRIVAL_QUEUE_URL"),
        "STATE_MACHINE_PREFIX",
    },
    "record-run": {"RUN_TABLE", "STATE_TABLE", "INTERMEDIATE_DAYS", "ARRIVAL_QUEUE_URL", _WAKE, *_COSTS},
    "check-days": {
        *("RAW_BUCKET", "EXCHANGE_BUCKET", "FILE_TABLE", "RUN_TABLE", "STATE_TABLE", "PROJECT_URI"),
        *("ARRIVAL_QUEUE_URL", "STATE_QUEUE_URL", "CHANGE_TOPIC", "RAW_TABLES_FUNCTION", *_COSTS),
        _WAKE,
    },
    "fold-state": {"RAW_BUCKET", "EXCHANGE_BUCKET", "FILE_TABLE", "STATE_TABLE", "PROJECT_URI", _WAKE},
    "check-arrivals": {
        *("RUN_TABLE", "PROJECT_URI", "MONITOR_MACHINE", "ARRIVAL_QUEUE_URL", "RAW_TABLES_FUNCTION"),
        _WAKE,
    },
    "compare-versions": {"EXCHANGE_BUCKET", "RUN_TABLE"},
    "notify-change": {"EXCHANGE_BUCKET", "RUN_TABLE", "CHANGE_TOPIC", *_COSTS},
    "write-ledger": {"EXCHANGE_BUCKET", "RUN_TABLE", "PROJECT_URI", "WAREHOUSE_DATABASE"},
    "maintain-tables": {"PROJECT_URI", "WAREHOUSE_DATABASE"},
    "send-lineage": {
        *("RUN_TABLE", "PROJECT_URI", "WAREHOUSE_DATABASE", "FILES_PREFIX", "OUTBOUND_ALLOW"),
        *("OPENLINEAGE_URL", "OPENLINEAGE_SECRET", "OPENLINEAGE_NAMESPACE"),
    },
    "start-scheduled": {"STATE_MACHINE_PREFIX"},
}
WITH_OPENLINEAGE = {name: VARIABLES[name] | {"LINEAGE_FUNCTION"} for name in ("freeze-inputs", "record-run")}
"""What the setting `openlineage` adds, beside the function `send-lineage`."""
