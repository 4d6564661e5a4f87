"""The part of the library that needs Spark: reading sources, running a stage, publishing a day, comparing versions."""
