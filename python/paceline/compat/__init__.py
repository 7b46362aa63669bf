"""Faces with the names of other systems, so that programs written for them run after one changed import line.

Nothing here has an engine of its own: each module says by which parts of Paceline it does what it does, and where what
a program can observe differs. docs/coming-from.md has the tables.
"""
