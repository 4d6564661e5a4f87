"""Checks of an account before and after a deployment, for `slackwater doctor`. All of them only read."""
