"""The local stack of real servers, one module per noun; ``stack.Stack`` is the way in.

Nothing is imported here: set-up uses ``java`` before the other modules' dependencies are installed.
"""
