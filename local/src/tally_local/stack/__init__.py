"""The local stack of real servers, one module per noun; ``stack.Stack`` is the entry point.

Nothing is imported here: the set-up uses some modules before the dependencies of the others are
installed.
"""
