"""`slackwater dev`: try a pipeline on a sample of its inputs, again after each change."""
