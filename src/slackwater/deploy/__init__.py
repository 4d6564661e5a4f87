"""What a deployment needs on the machine that deploys: tools, Airflow, and the checks of `slackwater doctor`."""
