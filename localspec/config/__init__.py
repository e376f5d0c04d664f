"""The user's settings: config.toml as records, read, changed, and put in order with what else has been said."""
