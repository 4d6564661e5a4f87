"""From a YAML graph of steps to a state machine."""
