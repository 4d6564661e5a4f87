"""The part of steps that needs Spark: reading sources, running a stage, what every Spark job does around its work."""
