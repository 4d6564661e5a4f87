"""From raw JSON values, strings and typed columns to checked events in Arrow tables."""
