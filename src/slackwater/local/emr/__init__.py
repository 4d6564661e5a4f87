"""EMR Serverless on this machine: its API, its states and errors, and real Spark behind them."""
