"""Grading a class with nbgrader: the chapters as assignments, and answers tried in a sandbox.

``docs/grading.md`` is the guide. A teacher's commands are in ``__main__``, ``collect`` and ``grade``, and
``course`` has a course's settings. ``grade`` lets ``apart`` run ``submission`` for each student, and
``record`` keeps what is done. ``gradebook`` reads the points, and ``tables`` and ``summary`` write them for
the teacher. ``report`` says what to teach next: ``analysis`` and ``short_test`` count, ``answers``
reads code, and ``pages`` has the templates. ``nbgrader`` has what nbgrader calls, ``platforms`` and
``intake`` take files, ``shapes`` says which of them count, and ``people`` and ``anonymous`` are about names.
``worker`` runs inside the sandbox, and ``sandbox`` and ``syscalls`` make the sandbox.
"""
