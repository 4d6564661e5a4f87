"""The client of a deployed system: `slackwater.Client`, and what its methods return."""
