"""The hub: what a repository holds before a byte of it is fetched, its download, and the models kept on disk.

The only room that fetches. huggingface_hub is imported in a child process alone; this side reads its events.
"""
