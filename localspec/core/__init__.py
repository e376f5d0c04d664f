"""The shared base of all rooms: errors, events, requests, files, sizes, the machine. Knows no other room."""
