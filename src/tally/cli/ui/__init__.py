"""What the command line shows: tables, a bar, values as text. Knows no command."""
