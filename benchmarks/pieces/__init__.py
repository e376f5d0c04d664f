"""What each piece of the chat's work below Textual's public interface buys: docs/textual.md has the figures."""
