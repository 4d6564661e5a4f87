"""The local cloud: every AWS service that Slackwater uses, on this machine, in one process, without an account."""
