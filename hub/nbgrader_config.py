"""nbgrader's exchange on the hub, for everybody; make hub copies this into the hub's environment."""

import sys
from pathlib import Path

from nbgrader.exchange.default import ExchangeSubmit


class ClosedSubmit(ExchangeSubmit):
    """Submits a folder that only the student and the teacher can enter.

    nbgrader lets everybody read a submission who can guess the random end of its name. The group of the
    folder ``inbound`` is the teacher's, and a folder that is made in it gets that group.
    """

    def set_perms(self, dest, fileperms, dirperms):
        """The folder is closed, so its files need not be."""
        super().set_perms(dest, 0o644, 0o750)

    def copy_files(self):
        """As nbgrader does it, but it opens the folder for everybody at the end."""
        super().copy_files()
        Path(self.inbound_path, self.assignment_filename).chmod(0o750)


c = get_config()
c.Exchange.root = str(Path(sys.prefix).parent / "exchange")
c.Exchange.path_includes_course = True  # ~/attention/03_splitting_heads
c.ExchangeFactory.submit = ClosedSubmit
c.CourseDirectory.course_id = "attention"
