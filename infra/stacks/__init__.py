"""The stacks: storage, receiver, processing, late, monitoring and, if Airflow is deployed, schedule."""
