"""Other ways to the same result: each counts ERROR lines per minute into the same MySQL.

A peer reads the whole topic, sums by minute and writes its result table with the offsets it has
read, in one transaction; it does not do the rest of what Tally does: no planned ranges, no checks
of what was read, no validation of the lines, no contributions by which a range can be replaced.
"""
