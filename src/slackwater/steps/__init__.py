"""Steps of pipelines, one module each: DataFrames in, a DataFrame out. No step depends on another."""
