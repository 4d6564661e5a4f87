"""Commands for definitions of sources, pipelines and steps."""
