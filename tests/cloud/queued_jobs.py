"""Jobs that occupy the deployed Spark application, so that the jobs of a run wait in its queue."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import Cloud


@contextmanager
def occupied_application(cloud: Cloud, folder: Path) -> Iterator[None]:
    """Let other jobs run on the application, as many as `concurrent_runs` allows, so that the next one is queued."""
    iam, emr, application = cloud.client("iam"), cloud.client("emr-serverless"), cloud.outputs()["ApplicationId"]
    trust = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "emr-serverless.amazonaws.com"}}
    name = f"waiting-{uuid.uuid4().hex[:8]}"
    created = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps({"Statement": [trust]}))
    bucket, key, end = cloud.outputs()["ExchangeBucket"], f"{name}.py", folder / "end"
    read = {"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": "*"}
    iam.put_role_policy(RoleName=name, PolicyName="read", PolicyDocument=json.dumps({"Statement": [read]}))
    program = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.1)"
    cloud.client("s3").put_object(Bucket=bucket, Key=key, Body=program.encode())
    # The capacity of a new account also suffices for the job that is queued. It can run in a driver of this size.
    sizes = {"driver.cores": 1, "driver.memory": "3g", "executor.cores": 1, "executor.memory": "1g"}
    sizes |= {"executor.instances": 1, "dynamicAllocation.initialExecutors": 1}
    small = " ".join(f"--conf spark.{name}={value}" for name, value in sizes.items())
    limit = emr.get_application(applicationId=application)["application"]["schedulerConfiguration"]["maxConcurrentRuns"]
    submitted = {
        "entryPoint": f"s3://{bucket}/{key}",
        "entryPointArguments": [str(end)],
        "sparkSubmitParameters": small,
    }
    for number in range(limit):
        emr.start_job_run(
            applicationId=application,
            clientToken=f"{name}-{number}",
            executionRoleArn=created["Role"]["Arn"],
            name=name,
            jobDriver={"sparkSubmit": submitted},
        )
    try:
        yield
    finally:
        end.touch()
