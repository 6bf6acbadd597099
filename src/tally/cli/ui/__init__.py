"""What the command line shows: tables, a progress bar, values as text. Imports no command."""
