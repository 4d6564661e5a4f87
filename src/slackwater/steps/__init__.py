"""Independent steps, one module each: DataFrames in, a DataFrame out; they know nothing of each other."""
