"""The edge to AWS: the only place that imports boto3. Every AWS error leaves it as one of `slackwater.errors`."""
