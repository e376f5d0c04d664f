"""llama.cpp through its low-level Python interface, and files in its format. Imports it when it is asked for."""
