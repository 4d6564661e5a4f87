"""The CloudWatch dashboards: one for operators, and by setting one for each pipeline and each source."""
