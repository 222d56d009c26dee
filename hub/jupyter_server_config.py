"""What a server on the hub does not open; make hub copies this into the hub's environment."""

from pathlib import Path

from jupyter_server.services.contents.largefilemanager import AsyncLargeFileManager
from tornado.web import HTTPError


class WithoutSubmissions(AsyncLargeFileManager):
    """The files of an account, but not the submissions that a teacher has collected.

    A notebook can run code as soon as a page shows it, and a link is enough to open one.
    """

    async def get(self, path, content=True, **options):
        closed = Path(self.root_dir, "course", "submitted").resolve()
        if content and Path(self._get_os_path(path)).resolve().is_relative_to(closed):
            raise HTTPError(404, "submissions are not opened here: read the pages in course/feedback")
        return await super().get(path, content, **options)


c = get_config()
c.ServerApp.contents_manager_class = WithoutSubmissions
