"""Grading a class with nbgrader: the chapters as assignments, and answers tried where they can do no harm.

``docs/teaching.md`` is the guide. ``nbgrader`` holds what nbgrader calls, ``intake`` takes a file, ``worker``
runs inside the walls, and ``sandbox`` and ``syscalls`` are the walls.
"""
