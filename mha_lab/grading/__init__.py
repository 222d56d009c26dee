"""Grading a class with nbgrader: the chapters as assignments, and answers tried in a sandbox.

``docs/teaching.md`` is the guide. ``nbgrader`` has what nbgrader calls, ``intake`` takes a file, ``worker``
runs inside the sandbox, and ``sandbox`` and ``syscalls`` make the sandbox.
"""
