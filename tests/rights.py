"""The calls that each role makes: the one list of permissions.

`tests/infra/test_rights.py` compares the templates with it: each role may make exactly these calls, and
`tests/cloud/rights.py` tries them with all roles. A row names actions and resources:
`s3:GetObject,PutObject Raw/raw/*`. Resources of the deployment have their logical ids, without hash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

_PROJECT = "s3:GetObject asset.json"
_JOB_FILES = "s3:GetObject asset.json asset.zip asset.py"
_JOB_LOGS = "s3:PutObject Exchange/logs/*"
_UPDATE_TABLES = "lambda:InvokeFunction updaterawtablesFunction"
_WAKE_RUNS = "lambda:InvokeFunction awaitinputsFunction"
_RUNS, _COMPARISONS = "execution:slackwater-pipeline-*:*", "execution:slackwater-compare-day:*"
_COSTS = ("states:GetExecutionHistory {}", "emr-serverless:GetJobRun SparkApplication/jobruns/*")
_DATABASE = "catalog database/slackwater_warehouse"
_LEDGER = "Warehouse/slackwater_warehouse/ledger/*"
_REPLACE = "s3:GetObject,PutObject,DeleteObject,AbortMultipartUpload"
_STARTS_JOBS = (
    "emr-serverless:StartJobRun,TagResource SparkApplication",
    "emr-serverless:GetJobRun,CancelJobRun,TagResource SparkApplication/jobruns/*",
    "events:PutRule,PutTargets,DescribeRule rule/StepFunctionsGetEventsForEMRServerlessJobRule",
)
_LOG_DELIVERY = (
    "logs:CreateLogDelivery,GetLogDelivery,UpdateLogDelivery,DeleteLogDelivery,ListLogDeliveries,PutResourcePolicy,"
    "DescribeResourcePolicies,DescribeLogGroups *"
)
_RUN_FUNCTIONS = "lambda:InvokeFunction awaitinputsFunction freezeinputsFunction recordrunFunction"


def _executions(*machines: str) -> tuple[str, ...]:
    """What a state machine needs to run others to their end."""
    executions = " ".join(f"execution:slackwater-{name}:*" for name in machines)
    return (
        f"states:StartExecution {' '.join(f'stateMachine:slackwater-{name}' for name in machines)}",
        f"states:DescribeExecution,StopExecution {executions}",
        "events:PutRule,PutTargets,DescribeRule rule/StepFunctionsGetEventsForStepFunctionsExecutionRule",
        _LOG_DELIVERY,
    )


def _job_of(pipeline: str, *, sources: tuple[str, ...] = (), upstream: str = "") -> tuple[str, ...]:
    """What the jobs of a pipeline need for its inputs, its table and its files."""
    own, table = f"Warehouse/slackwater_warehouse/{pipeline}/*", f"table/slackwater_warehouse/{pipeline}"
    published = (f"s3:ListBucket,GetObject Warehouse/slackwater_warehouse/{upstream}/*",) if upstream else ()
    return (
        *(f"s3:ListBucket,GetObject Raw/raw/source={source}/*" for source in sources),
        "s3:PutObject Raw/rejected/*",
        *published,
        *((f"glue:GetTable table/slackwater_warehouse/{upstream}",) if upstream else ()),
        *(_JOB_FILES, _JOB_LOGS),
        f"s3:ListBucket,GetObject Exchange/manifests/{pipeline}/* Exchange/arrow/{pipeline}/*",
        f"s3:PutObject Exchange/arrow/{pipeline}/*",
        f"{_REPLACE} Exchange/runs/{pipeline}/* {own} Warehouse/files/*",
        f"s3:ListBucket Exchange/runs/{pipeline}/* {own} Warehouse/files/*",
        "dynamodb:GetItem RunTable",
        f"glue:GetTable,CreateTable,UpdateTable {_DATABASE} {table}",
        f"glue:GetDatabase {_DATABASE}",
    )


_OF_FUNCTIONS: dict[str, tuple[str, ...]] = {
    "receiveevents": (
        *(_PROJECT, _WAKE_RUNS),
        "s3:ListBucket,GetObject,PutObject Raw/receipts/*",
        "s3:PutObject Raw/raw/* Raw/sideline/*",
        "dynamodb:GetItem TokenTable",
        "dynamodb:UpdateItem FileTable",
        "dynamodb:BatchWriteItem,Query,UpdateItem StateTable",
        "sqs:SendMessage EventBufferQueue StatesQueue",
    ),
    "storeevents": (
        _PROJECT,
        "s3:PutObject Raw/raw/*",
        "sqs:ReceiveMessage,DeleteMessage,GetQueueAttributes EventBufferQueue",
    ),
    "redriveevents": (
        _PROJECT,
        "s3:ListBucket,GetObject Raw/sideline/* Raw/receipts/* Raw/redriven/*",
        "s3:PutObject Raw/raw/* Raw/redriven/*",
        "dynamodb:BatchWriteItem StateTable",
        "sqs:SendMessage StatesQueue",
    ),
    "listfiles": (
        _PROJECT,
        "s3:PutObject Exchange/pulls/*",
        "dynamodb:BatchGetItem,PutItem FileTable",
        "dynamodb:BatchGetItem,BatchWriteItem,Query,UpdateItem StateTable",
        "sqs:SendMessage StatesQueue",
        "dynamodb:Query FileTable/index/due FileTable/index/not-taken FileTable/index/dated",
    ),
    "fetchfile": (
        _PROJECT,
        "s3:ListBucket,GetObject Exchange/pulls/*",
        "s3:PutObject Raw/raw/* Raw/sideline/* Raw/landing/*",
        "dynamodb:BatchGetItem,PutItem,UpdateItem FileTable",
        "dynamodb:BatchWriteItem StateTable",
        "sqs:SendMessage ArrivalsQueue StatesQueue",
    ),
    "updaterawtables": (
        _PROJECT,
        "s3:ListBucket,GetObject Raw/raw/*",
        f"{_REPLACE} Warehouse/slackwater_raw/*",
        "s3:ListBucket Warehouse/slackwater_raw/*",
        "dynamodb:BatchGetItem FileTable",
        "glue:GetDatabase catalog database/slackwater_raw",
        "glue:GetTable,CreateTable,UpdateTable catalog database/slackwater_raw table/slackwater_raw/*",
    ),
    # No other role of the receiver deletes raw objects, and none deletes rejected events or pulled files.
    "removestale": (
        *(_PROJECT, _UPDATE_TABLES),
        "s3:ListBucket,DeleteObject Raw/raw/*",
        "s3:ListBucket,GetObject,PutObject Exchange/stale-objects/*",
        "dynamodb:BatchGetItem FileTable",
    ),
    "packobjects": (
        *(_PROJECT, _UPDATE_TABLES),
        "s3:ListBucket,GetObject,PutObject,DeleteObject Raw/raw/*",
        "dynamodb:BatchGetItem FileTable",
    ),
    "freezeinputs": (
        _PROJECT,
        "s3:ListBucket,GetObject Raw/raw/*",
        "s3:ListBucket,GetObject,PutObject Exchange/manifests/* Exchange/runs/*",
        "s3:ListBucket Exchange/arrow/*",
        "s3:GetObject Exchange/projects/*",
        "dynamodb:BatchGetItem FileTable",
        "dynamodb:Query FileTable/index/dated",
        "dynamodb:BatchGetItem,Query StateTable",
        "dynamodb:GetItem,PutItem,DeleteItem,Query RunTable",
        f"states:DescribeExecution {_RUNS}",
    ),
    "awaitinputs": (
        _PROJECT,
        "s3:ListBucket,GetObject Raw/raw/*",
        "s3:ListBucket,GetObject Exchange/manifests/*",
        "dynamodb:BatchGetItem FileTable",
        "dynamodb:BatchGetItem,Query,PutItem,UpdateItem,DeleteItem StateTable",
        "dynamodb:GetItem RunTable",
        "states:SendTaskSuccess,SendTaskFailure stateMachine:slackwater-pipeline-*",
        "sqs:SendMessage ArrivalsQueue",
    ),
    "recordrun": (
        _WAKE_RUNS,
        "s3:ListBucket,GetObject Exchange/manifests/* Exchange/runs/*",
        "dynamodb:GetItem,PutItem,DeleteItem,Query RunTable",
        "dynamodb:BatchWriteItem,Query StateTable",
        "sqs:SendMessage ArrivalsQueue",
        *(row.format(_RUNS) for row in _COSTS),
    ),
    "checkdays": (
        *(_PROJECT, _UPDATE_TABLES, _WAKE_RUNS),
        "s3:ListBucket,GetObject Raw/raw/* Raw/sideline/* Raw/redriven/* Exchange/manifests/*",
        "s3:PutObject Exchange/checks/* Exchange/ledger/*",
        "dynamodb:BatchGetItem FileTable",
        "dynamodb:BatchGetItem,BatchWriteItem,Query StateTable",
        "dynamodb:GetItem,PutItem,UpdateItem,DeleteItem,Query RunTable",
        "dynamodb:Query RunTable/index/published RunTable/index/notification-due RunTable/index/held",
        # The monitorings are those that have claimed a message about changed tables.
        f"states:DescribeExecution {_RUNS} execution:slackwater-monitor-days:*",
        *(row.format(f"{_RUNS} {_COMPARISONS}") for row in _COSTS),
        "sqs:SendMessage ArrivalsQueue StatesQueue",
        "sns:Publish Changes",
    ),
    "foldstate": (
        *(_PROJECT, _WAKE_RUNS),
        "s3:ListBucket,GetObject Raw/raw/*",
        # Its lists of files lead to no message: only objects of the raw bucket do.
        "s3:PutObject Exchange/state/*",
        "dynamodb:BatchGetItem FileTable",
        "dynamodb:BatchGetItem,Query,PutItem,UpdateItem,BatchWriteItem StateTable",
        "events:PutEvents event-bus/default",
        "sqs:ReceiveMessage,DeleteMessage,GetQueueAttributes StatesQueue",
    ),
    "checkarrivals": (
        *(_PROJECT, _UPDATE_TABLES, _WAKE_RUNS),
        "dynamodb:GetItem,UpdateItem RunTable",
        "states:StartExecution stateMachine:slackwater-monitor-days",
        f"states:DescribeExecution {_RUNS}",
        "sqs:SendMessage,ReceiveMessage,DeleteMessage,GetQueueAttributes ArrivalsQueue",
    ),
    "compareversions": (
        "s3:ListBucket,GetObject,PutObject Exchange/comparisons/*",
        "s3:ListBucket,GetObject Exchange/manifests/*",
        "dynamodb:GetItem,PutItem,Query RunTable",
        f"states:DescribeExecution {_COMPARISONS}",
    ),
    "notifychange": (
        "s3:ListBucket,GetObject,PutObject Exchange/comparisons/*",
        "dynamodb:GetItem,PutItem,Query RunTable",
        "states:DescribeExecution execution:slackwater-monitor-days:*",
        *(row.format(f"{_RUNS} {_COMPARISONS}") for row in _COSTS),
        "sns:Publish Changes",
    ),
    "writeledger": (
        _PROJECT,
        "s3:ListBucket,GetObject Exchange/ledger/* Exchange/checks/* Exchange/manifests/* Exchange/comparisons/*",
        "s3:DeleteObject Exchange/ledger/*",
        f"s3:ListBucket {_LEDGER}",
        f"{_REPLACE} {_LEDGER}",
        "dynamodb:Query RunTable",
        "states:DescribeExecution execution:slackwater-monitor-days:*",
        f"glue:GetDatabase {_DATABASE}",
        f"glue:GetTable,CreateTable,UpdateTable {_DATABASE} table/slackwater_warehouse/ledger",
    ),
    "maintaintables": (
        _PROJECT,
        "s3:ListBucket Warehouse/slackwater_warehouse/*",
        f"{_REPLACE} Warehouse/slackwater_warehouse/*",
        f"glue:GetDatabase {_DATABASE}",
        f"glue:GetTable,UpdateTable {_DATABASE} table/slackwater_warehouse/*",
    ),
}
FUNCTIONS = {role: (*rows, f"logs:CreateLogStream,PutLogEvents {role}Logs") for role, rows in _OF_FUNCTIONS.items()}
JOBS: dict[str, tuple[str, ...]] = {
    "PipelinedailydelaysJob": _job_of("daily_delays", sources=("flights", "weather")),
    "PipelineweeklydelaysJob": _job_of("weekly_delays", upstream="daily_delays"),
    # Of pipelines that are not deployed.
    "AnyPipelineJob": (
        *(_JOB_FILES, _JOB_LOGS),
        "s3:ListBucket,GetObject Raw/raw/* Exchange/manifests/* Exchange/arrow/*",
        "s3:GetObject Exchange/projects/*",
        "s3:PutObject Exchange/arrow/* Raw/rejected/*",
        f"{_REPLACE} Exchange/runs/* Warehouse/slackwater_warehouse/* Warehouse/files/*",
        "s3:ListBucket Exchange/runs/* Warehouse/slackwater_warehouse/* Warehouse/files/*",
        "dynamodb:GetItem RunTable",
        f"glue:GetDatabase,GetTable,CreateTable,UpdateTable {_DATABASE} table/slackwater_warehouse/*",
    ),
    "CompareJob": (
        *(_JOB_FILES, _JOB_LOGS),
        "s3:ListBucket,GetObject Exchange/manifests/* Exchange/arrow/comparisons/* Warehouse/slackwater_warehouse/*",
        f"{_REPLACE} Exchange/comparisons/*",
        "s3:ListBucket Exchange/comparisons/*",
        f"glue:GetDatabase,GetTable {_DATABASE} table/slackwater_warehouse/*",
    ),
    # It computes days with the files of earlier deployments, and writes no table.
    "SplitJob": (
        *("s3:GetObject assets/*.json assets/*.zip assets/*.py", _JOB_LOGS),
        "s3:ListBucket,GetObject Raw/raw/* Exchange/arrow/comparisons/*",
        "s3:ListBucket,GetObject Warehouse/slackwater_warehouse/* Warehouse/files/*",
        "s3:PutObject Exchange/arrow/comparisons/*",
        f"{_REPLACE} Exchange/comparisons/*",
        "s3:ListBucket Exchange/comparisons/*",
        f"glue:GetDatabase,GetTable {_DATABASE} table/slackwater_warehouse/*",
    ),
    "PullJob": (
        *(_JOB_FILES, _JOB_LOGS),
        "s3:GetObject,PutObject Exchange/pulls/*",
        "s3:PutObject Raw/raw/* Raw/sideline/*",
        "s3:PutObject Raw/landing/*",
        "dynamodb:BatchGetItem,PutItem FileTable",
        "dynamodb:BatchWriteItem StateTable",
    ),
}
MACHINES: dict[str, tuple[str, ...]] = {
    **{
        machine: (f"iam:PassRole {job}Role", _RUN_FUNCTIONS, *_STARTS_JOBS, _LOG_DELIVERY)
        for machine, job in (
            ("PipelinedailydelaysMachine", "PipelinedailydelaysJob"),
            ("PipelineweeklydelaysMachine", "PipelineweeklydelaysJob"),
        )
    },
    # A machine of a pipeline that is not deployed has no log.
    "AnyPipeline": ("iam:PassRole AnyPipelineJobRole", _RUN_FUNCTIONS, *_STARTS_JOBS),
    "Pull": (
        "iam:PassRole PullJobRole",
        "lambda:InvokeFunction listfilesFunction fetchfileFunction",
        *(*_STARTS_JOBS, _LOG_DELIVERY),
    ),
    "Compare": (
        "iam:PassRole CompareJobRole SplitJobRole",
        "lambda:InvokeFunction compareversionsFunction",
        *(*_STARTS_JOBS, _LOG_DELIVERY),
    ),
    "Monitor": (
        "lambda:InvokeFunction checkdaysFunction notifychangeFunction writeledgerFunction",
        *_executions("pipeline-*", "compare-day"),
    ),
    "Backfill": _executions("pipeline-*"),
}
_SCHEDULED = ("pull-source", "pipeline-daily_delays", "pipeline-weekly_delays", "monitor-days")
_STARTS = f"states:StartExecution {' '.join(f'stateMachine:slackwater-{name}' for name in _SCHEDULED)}"
EVENTBRIDGE: dict[str, tuple[str, ...]] = {
    "startscheduled": (
        *(_STARTS, "sqs:SendMessage slackwater-dead-letters"),
        "logs:CreateLogStream,PutLogEvents startscheduledLogs",
    ),
    "Schedule": ("lambda:InvokeFunction startscheduledFunction", "sqs:SendMessage slackwater-dead-letters"),
}
"""The roles of the schedule with `schedule=eventbridge`."""
_AIRFLOW_LOGS = "log-group:airflow-slackwater-schedule-*"
AIRFLOW: dict[str, tuple[str, ...]] = {
    "Airflow": (
        _STARTS,
        f"states:DescribeExecution,StopExecution {' '.join(f'execution:slackwater-{name}:*' for name in _SCHEDULED)}",
        f"states:GetExecutionHistory {' '.join(f'execution:slackwater-{name}:*' for name in _SCHEDULED[1:])}",
        # What the user guide of MWAA lists.
        "airflow:PublishMetrics environment/slackwater-schedule",
        "s3:GetObject*,GetBucket*,List* Dags Dags/*",
        "s3:GetAccountPublicAccessBlock *",
        "logs:DescribeLogGroups *",
        "cloudwatch:PutMetricData *",
        f"logs:CreateLogStream,CreateLogGroup,PutLogEvents,GetLogEvents,GetLogRecord {_AIRFLOW_LOGS}",
        f"logs:GetLogGroupFields,GetQueryResults {_AIRFLOW_LOGS}",
        "sqs:ChangeMessageVisibility,DeleteMessage,GetQueueAttributes,GetQueueUrl sqs:*:airflow-celery-*",
        "sqs:ReceiveMessage,SendMessage sqs:*:airflow-celery-*",
        # Through SQS only, and no key of the account.
        "kms:Decrypt,DescribeKey,GenerateDataKey*,Encrypt not:key/*",
    ),
    "Files": (
        "s3:GetObject asset.zip",
        "s3:ListBucket,PutObject,DeleteObject Dags/dags/*",
        "logs:CreateLogStream,PutLogEvents FilesLogs",
    ),
    "NetworkRejectedIAM": ("logs:CreateLogStream,PutLogEvents,DescribeLogStreams NetworkLogs",),
}
"""The roles of the schedule with `schedule=airflow`."""
STARTING_DAG_RUNS = {"checkarrivals": ("airflow:InvokeRestApi role/slackwater-schedule/User",)}
"""What the setting `schedule=airflow` adds."""
_SEND_LINEAGE = ("lambda:InvokeFunction sendlineageFunction",)
SENDING_LINEAGE = {"freezeinputs": _SEND_LINEAGE, "recordrun": _SEND_LINEAGE}
LINEAGE: dict[str, tuple[str, ...]] = {
    "sendlineage": (
        _PROJECT,
        "s3:ListBucket,GetObject Exchange/manifests/* Exchange/runs/*",
        "dynamodb:GetItem RunTable",
        "logs:CreateLogStream,PutLogEvents sendlineageLogs",
    ),
}
"""What the setting `openlineage` adds: calls of other roles, and a role."""
LINEAGE_SECRET = {"sendlineage": ("secretsmanager:GetSecretValue secret:lineage-??????",)}
"""What its `api_key_secret` adds."""
REMOVING_ARROW_FILES = {"recordrun": ("s3:ListBucket,DeleteObject Exchange/arrow/*",)}
"""What the setting `intermediate_days: 0` adds."""
ROLES = {**FUNCTIONS, **JOBS, **MACHINES}
"""The calls of each role, by its logical id without `Role` and hash; of the example, without its schedule."""


def calls(rows: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield each action with each of its resources."""
    for row in rows:
        actions, *resources = row.split()
        service, _, verbs = actions.partition(":")
        yield from ((f"{service}:{verb}", resource) for verb in verbs.split(",") for resource in resources)


def may(role: str, action: str, resource: str, *, roles: Mapping[str, tuple[str, ...]] = ROLES) -> bool:
    """Whether a role may make a call. The resource may be a pattern: all that it matches."""
    return any(action == own and fnmatchcase(resource, pattern) for own, pattern in calls(roles[role]))
