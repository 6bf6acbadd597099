"""The laboratory: what each way to deliver loses or doubles, under the same faults.

``__main__`` is the supervisor: it writes the lines, starts a method in a process of its own, starts
it again when it was killed, and compares what it has counted with what was written. ``child`` is
that process, ``methods`` are the ways to deliver, ``faults`` strike at named points.
"""
