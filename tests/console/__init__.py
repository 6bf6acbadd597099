"""The console as somebody uses it: a browser, and every server behind it."""
