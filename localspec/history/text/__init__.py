"""The history as plain text: lists of chats, a chat, and who wrote its tokens. Readable in monochrome."""
