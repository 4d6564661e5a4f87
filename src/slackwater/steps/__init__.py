"""Independent steps, one module each: DataFrames in, a DataFrame out. No step knows another."""
