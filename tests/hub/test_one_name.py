"""The hub at one name for all, as it was before each server had its own: the attack that then succeeds."""

import pytest

from bench.browser import needs_chromium
from tests.hub.running import BOB, EVE, TEACHER, needs_hub, running
from tests.hub.student import SCOPES, stolen, visit

pytestmark = [pytest.mark.hub, needs_hub, needs_chromium]


def test_with_one_name_the_same_page_takes_the_account_and_the_hub_says_so(tmp_path, capfd):
    with running(tmp_path, BOB, EVE, ONE_NAME="yes") as hub:
        hub.attacker(EVE)
        found = visit(hub, BOB, *SCOPES[BOB])
        assert found["window, hub"].startswith("201 ")
        assert found["window, server"].startswith("200 attention")
        assert "uid=" in found["socket, server"]
        assert stolen(hub) >= 1  # several ways lead there
        # The teacher has no rights of an admin that could be taken.
        assert not visit(hub, TEACHER, *SCOPES[TEACHER])["window, hub"].startswith("2")
    said = (
        "a page of one student that another student or the teacher opens can do everything with that account"
    )
    assert said in capfd.readouterr().out
