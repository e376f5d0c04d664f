"""The user's settings: config.toml as records; reading, writing, and precedence."""
