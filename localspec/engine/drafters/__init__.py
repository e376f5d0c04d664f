"""Drafters, one file each: they propose tokens cheaply and never decide."""
