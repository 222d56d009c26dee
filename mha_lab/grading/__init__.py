"""Grading a class with nbgrader: the chapters as assignments, and answers tried where they can do no harm.

``docs/teaching.md`` is the guide. ``grading`` holds what nbgrader calls, ``isolation`` the walls around
a submission, ``worker`` what runs inside them.
"""
