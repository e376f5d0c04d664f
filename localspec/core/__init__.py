"""What every room may know: errors, events, requests, files, sizes, the machine. Knows no other room."""
