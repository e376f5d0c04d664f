"""The chat where it is heavy: long answers, long histories, hostile text, storms of sizes."""
