"""The hub's files without a hub: the class list, the limits, the values for Kubernetes."""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import yaml
from traitlets.config import Config

from tests.hub.running import certificate
from tests.notebooks.chapters import ROOT

HUB = ROOT / "hub"
ACCOUNTS, LIMITS = (runpy.run_path(str(HUB / f"{name}.py")) for name in ("accounts", "limits"))
SCHEMA = os.environ.get("Z2JH_SCHEMA", "")  # values.schema.json of the chart


@pytest.fixture
def start(monkeypatch):
    """What start.py defines."""
    monkeypatch.syspath_prepend(HUB)
    return runpy.run_path(str(HUB / "start.py"))


def class_list(folder, text):
    (folder / "class.csv").write_text(text, encoding="utf-8")
    return folder / "class.csv"


def test_a_class_list_is_that_of_nbgrader(tmp_path):
    text = "\ufeffid,first_name,last_name,email\nada,Ada,Lovelace,ada@example.org\nbob-2,Bob,Two,\n"
    assert ACCOUNTS["listed"](class_list(tmp_path, text)) == ["ada", "bob-2"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("name\nada\n", "no column `id`"),
        ("id\nada\nada\n", "twice"),
        ("id\n../../etc\n", "cannot be an account"),
        ("id\n-G\n", "cannot be an account"),
        ("id\nAda\n", "cannot be an account"),
        ("id\nada:x\n", "cannot be an account"),
    ],
)
def test_a_class_list_that_cannot_be_used_is_refused(tmp_path, text, reason):
    with pytest.raises(ValueError, match=reason):
        ACCOUNTS["listed"](class_list(tmp_path, text))


def test_an_account_that_the_hub_did_not_make_is_left_alone(tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: done.append(command))
    monkeypatch.setattr("grp.getgrnam", lambda name: type("Group", (), {"gr_mem": ["ada"]}))
    with pytest.raises(ValueError, match="root"):
        ACCOUNTS["make"](["ada", "root"], "mha-students", tmp_path / "passwords.csv")
    assert [command[0] for command in done] == ["groupadd"]
    assert not (tmp_path / "passwords.csv").exists()


def test_the_limits_are_written_for_both_versions_of_control_groups(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for controller in ("memory", "cpu", "pids"):
        (one / controller).mkdir(parents=True)
    two.mkdir()
    (two / "cgroup.controllers").touch()
    entries = LIMITS["group"]("ada", 2**31, 1.5, root=one)
    assert (one / "memory/mha-hub/ada/memory.limit_in_bytes").read_text() == str(2**31)
    assert (one / "cpu/mha-hub/ada/cpu.cfs_quota_us").read_text() == "150000"
    assert entries == [str(one / part / "mha-hub/ada/cgroup.procs") for part in ("memory", "cpu", "pids")]
    entries = LIMITS["group"]("ada", 2**31, 1.5, root=two)
    assert (two / "mha-hub/ada/memory.max").read_text() == str(2**31)
    assert (two / "mha-hub/ada/cpu.max").read_text() == "150000 100000"
    assert "+memory" in (two / "mha-hub/cgroup.subtree_control").read_text()
    assert entries == [str(two / "mha-hub/ada/cgroup.procs")]


def test_a_teacher_who_grades_has_more_memory_than_a_student(monkeypatch):
    monkeypatch.syspath_prepend(HUB)
    start = runpy.run_path(str(HUB / "start.py"))["SETTINGS"]
    assert (
        LIMITS["in_bytes"](start["TEACHER_MEMORY"])
        == 4 * LIMITS["in_bytes"](start["STUDENT_MEMORY"])
        == 8 * 2**30
    )
    assert [LIMITS["in_bytes"](text) for text in ("512M", "1.5G", "0")] == [2**29, 3 * 2**29, 0]
    # The load test grades within the limits of that server.
    (teach,) = re.findall(r"(?ms)^    async def teach.+?^    def ", (HUB / "load_test.py").read_text("utf-8"))
    assert "limits.enter(entries)" in teach


# As if the module were missing, as it is on Debian without the package python3-venv.
WITHOUT_VENV = """import runpy, sys
sys.path.insert(0, sys.argv.pop(1))
sys.modules["ensurepip"] = None
runpy.run_path(sys.path[0] + "/start.py", run_name="__main__")"""


@pytest.mark.parametrize(
    ("program", "settings", "reason"),
    [
        ([str(HUB / "start.py")], {"HUB_URL": "http://0.0.0.0:8000"}, "set CERT and KEY"),
        ([str(HUB / "start.py")], {"PATH": ""}, "programs are missing: apt install"),
        ([str(HUB / "start.py")], {"HUB_PORT": "8081"}, "HUB_PORT must be below 1024"),
        (["-c", WITHOUT_VENV, str(HUB)], {}, "no venv module: install it (on Debian and Ubuntu: apt install"),
    ],
)
@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="the hub starts as root only")
def test_a_hub_that_is_not_safe_or_complete_does_not_start(tmp_path, program, settings, reason):
    python = "/usr/bin/python3"  # another one may be in a home folder, which is another reason
    if not Path(python).exists():
        pytest.skip("there is no /usr/bin/python3")
    environment = os.environ | {"HUB": str(tmp_path / "hub")} | settings
    command = [python, *program, "no-class.csv"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1
    assert reason in done.stderr or "programs are missing" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "hub").exists()


CERTIFICATES = {"one": ["hub.test"], "wildcard": ["hub.test", "*.hub.test"]}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """``{name: (certificate, key)}``."""
    if not shutil.which("openssl"):
        pytest.skip("no openssl")
    made = {}
    for name, hosts in CERTIFICATES.items():
        made[name] = certificate(tmp_path_factory.mktemp(name), *hosts)
    return made | {"mixed": [made["one"][0], made["wildcard"][1]]}


@pytest.mark.parametrize(
    ("settings", "files", "reason"),
    [
        ({"HUB_URL": "https://hub.test", "LISTEN": "0.0.0.0:443"}, "wildcard", ""),
        ({"HUB_URL": "https://hub.test", "ONE_NAME": "yes"}, "one", ""),
        ({"HUB_URL": "https://hub.test", "LISTEN": "127.0.0.1:8000"}, "", ""),  # behind a web server
        ({"HUB_URL": "http://localhost:9000"}, "", ""),
        ({"HUB_URL": "https://hub.test"}, "one", "refused for teacher.hub.test: Hostname mismatch"),
        ({"HUB_URL": "https://other.test"}, "wildcard", "refused for other.test: Hostname mismatch"),
        ({"HUB_URL": "https://hub.test"}, "mixed", "are not a certificate and its key"),
        ({"HUB_URL": "http://hub.test"}, "wildcard", "begins with https://"),
        ({"HUB_URL": "http://127.0.0.1:8000"}, "", "127.0.0.1 is a number"),
        ({"HUB_URL": "http://hub.test:8000", "ONE_NAME": "yes"}, "", "in the clear"),
        ({"LISTEN": "0.0.0.0:8000"}, "", "in the clear"),
        ({"HUB_URL": "https://hub.test", "LISTEN": "0.0.0.0:443"}, "", "in the clear"),
        ({"HUB_URL": "hub.test"}, "", "an address such as https://hub.example.org"),
    ],
)
def test_each_server_has_a_name_that_the_certificate_names(start, certificates, settings, files, reason):
    given = dict(zip(("CERT", "KEY"), certificates[files], strict=True)) if files else {}
    check = partial(start["names"].check, start["SETTINGS"] | given | settings)
    if not reason:
        return check()
    with pytest.raises(ValueError, match=re.escape(reason)) as stopped:
        check()
    if "refused" in reason or "number" in reason:  # then it explains what to ask for
        assert len(str(stopped.value).splitlines()) == 5
        assert "*." in str(stopped.value)
        assert "ONE_NAME=yes" in str(stopped.value)


def test_names_that_lead_nowhere_are_counted(start, monkeypatch):
    def look_up(name, port):
        if not name.startswith("ada."):
            raise OSError

    monkeypatch.setattr("socket.getaddrinfo", look_up)
    settings = start["SETTINGS"] | {"HUB_URL": "https://hub.test"}
    assert start["names"].unknown(["ada", "bob"], settings) == ["bob.hub.test"]
    assert start["names"].unknown(["ada", "bob"], settings | {"ONE_NAME": "yes"}) == []
    assert start["names"].unknown(["ada", "bob"], start["SETTINGS"]) == []


def test_who_is_no_longer_listed_is_closed_and_deleted(start, tmp_path, monkeypatch):
    same, done = runpy.run_path(str(HUB / "class_list.py"))["same"], []
    names = same.__globals__["accounts"]
    for name in ("make", "close"):
        monkeypatch.setattr(names, name, lambda *given, name=name: done.append((name, given[0])))

    def hub(method, path):
        done.append((method, path))
        return [{"name": name} for name in ("ada", "bob", "teacher")]

    monkeypatch.setitem(same.__globals__, "hub", hub)
    listed = class_list(tmp_path, "id\nada\n")
    same(listed, "teacher", tmp_path / "passwords.csv")
    deleted = [("close", ["bob"]), ("DELETE", "/users/bob")]
    assert done == [("make", ["ada"]), ("GET", "/users"), *deleted]
    done.clear()
    with pytest.raises(ValueError, match="no column"):
        same(class_list(tmp_path, "name\nada\n"), "teacher", tmp_path / "passwords.csv")
    assert done == []


def test_only_accounts_of_students_are_closed_and_nothing_of_root_is_ended(monkeypatch):
    done = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: done.append(command[:1] + command[-1:]))
    monkeypatch.setattr("grp.getgrnam", lambda name: type("Group", (), {"gr_mem": ["ada"]}))
    ACCOUNTS["close"](["root", "teacher"])
    ACCOUNTS["end"](["root"])
    assert done == []


def test_who_listens_at_a_port_is_read_from_the_kernels_table(tmp_path):
    rows = [
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
        "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1001        0 1 1",
        "   1: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1002        0 1 1",
        "   2: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000 00000000  1003        0 1 1",
        "   3: 0100007F:1F91 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1004        0 1 1",
    ]
    six = [row.replace("00000000:1F", f"{'0' * 32}:1F").replace("1F90", "1F92") for row in rows]
    six += [
        row.replace("0100007F:1F", f"{'0' * 16}FFFF00000100007F:1F").replace("1F90", "1F93") for row in rows
    ]
    for name, lines in {"tcp": rows, "tcp6": [*six, rows[1].replace("1001", "1005")]}.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert ACCOUNTS["owners"](0x1F90, tmp_path) == {1001, 1002}  # IPv4 comes first
    assert ACCOUNTS["owners"](0x1F92, tmp_path) == {1002}
    assert ACCOUNTS["owners"](0x1F93, tmp_path) == {1001}
    assert ACCOUNTS["owners"](0x1F94, tmp_path) == set()


def test_a_log_keeps_its_newest_part_and_does_not_fill_the_disk(start, tmp_path):
    log = tmp_path / "hub.log"
    with log.open("ab", buffering=0) as writer:  # as the hub has it
        for line in (b"1\n", b"2\n", b"3\n"):
            writer.write(line * 600)
            start["shorten"](log, 1000)
    assert log.read_bytes() == b""
    assert log.with_suffix(".old").read_bytes() == b"3\n" * 600
    log.write_bytes(b"4")
    start["shorten"](log, 1000)
    assert log.read_bytes() == b"4"


@pytest.mark.usefixtures("start")
def test_every_server_and_port_of_the_hub_is_bound_to_this_machine():
    start = runpy.run_path(str(HUB / "start.py"))
    assert start["names"].listening(start["SETTINGS"]) == ("127.0.0.1", 8000)
    assert [int(start["SETTINGS"][name]) < 1024 for name in ("HUB_PORT", "PROXY_PORT")] == [True, True]
    text = "".join(path.read_text(encoding="utf-8") for path in HUB.glob("*.py"))
    assert "0.0.0.0" not in text
    assert 'c.Spawner.ip = "127.0.0.1"' in text


def test_what_is_installed_is_pinned_and_names_no_registry():
    lock = json.loads((HUB / "package-lock.json").read_text(encoding="utf-8"))
    wanted = json.loads((HUB / "package.json").read_text(encoding="utf-8"))["dependencies"]
    for name, version in wanted.items():
        assert lock["packages"][f"node_modules/{name}"]["version"] == version
    assert not [about["resolved"] for about in lock["packages"].values() if "resolved" in about]
    lines = (HUB / "requirements.txt").read_text(encoding="utf-8").splitlines()
    assert all(re.fullmatch(r"#.*|[\w-]+==[\d.]+", line) for line in lines)


@pytest.mark.parametrize(
    "name", ["jupyterhub_config", "class_list", "nbgrader_config", "load_test", "z2jh/nbgrader_config"]
)
def test_the_programs_of_the_hub_compile(name):
    path = HUB / f"{name}.py"
    compile(path.read_text(encoding="utf-8"), str(path), "exec")


def test_kubernetes_gets_what_the_chart_accepts(tmp_path):
    if not SCHEMA:
        pytest.skip("name values.schema.json of Zero to JupyterHub in Z2JH_SCHEMA")
    schema = _without_required(json.loads(Path(SCHEMA).read_text(encoding="utf-8")))
    schema.pop("$schema", None)
    (tmp_path / "schema.json").write_text(json.dumps(schema), encoding="utf-8")
    program = [sys.executable, "-m", "check_jsonschema", "--schemafile", str(tmp_path / "schema.json")]
    done = subprocess.run(
        [*program, str(HUB / "z2jh" / "values.yaml")], capture_output=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout.decode()


def _without_required(schema):
    """The chart's own values fill in what is required."""
    if isinstance(schema, dict):
        return {
            k: _without_required(v)
            for k, v in schema.items()
            if not (k == "required" and isinstance(v, list))
        }
    return [_without_required(each) for each in schema] if isinstance(schema, list) else schema


def test_the_minutes_of_the_first_lesson_are_those_of_its_steps():
    guide = (ROOT / "docs" / "before-the-first-lesson.md").read_text(encoding="utf-8")
    steps = re.findall(r"(?m)^## \d\. .+\((\d+) minutes", guide)
    assert re.findall(r"take (\d+) minutes, and about half", guide) == [str(sum(map(int, steps)))]


def test_on_kubernetes_each_server_has_a_name_and_nobody_is_an_admin():
    values = yaml.safe_load((HUB / "z2jh" / "values.yaml").read_text(encoding="utf-8"))
    hub, https = values["hub"]["config"], values["proxy"]["https"]
    host = hub["JupyterHub"]["subdomain_host"].removeprefix("https://")
    assert https["hosts"] == [host, f"*.{host}"]
    assert hub["JupyterHub"]["cookie_host_prefix_enabled"] is True
    assert "admin_users" not in hub["Authenticator"]
    assert values["hub"]["loadRoles"] == {"admin": {"users": [], "services": []}}
    servers = values["singleuser"]
    assert servers["networkPolicy"]["enabled"] is True
    assert servers["networkPolicy"]["egressAllowRules"] == {"cloudMetadataServer": False, "privateIPs": False}
    assert not any("git-pull" in str(value) for value in servers.values())


def test_on_kubernetes_a_file_of_a_user_number_without_a_name_is_collected():
    settings = Config()
    file = HUB / "z2jh" / "nbgrader_config.py"
    runpy.run_path(str(file), {"get_config": lambda: settings})
    assert settings.ExchangeCollect.check_owner is False


def test_the_image_copies_files_that_exist_and_has_the_limits_of_the_hub():
    recipe = (HUB / "z2jh" / "Dockerfile").read_text(encoding="utf-8")
    copied = [word for line in re.findall(r"(?m)^COPY (.+) \S+$", recipe) for word in line.split()]
    assert len(copied) > 5
    assert [name for name in copied if not (ROOT / name).exists()] == []
    values = yaml.safe_load((HUB / "z2jh" / "values.yaml").read_text(encoding="utf-8"))["singleuser"]
    assert values["memory"]["limit"] == re.search(r'"STUDENT_MEMORY": "(\w+)"', _start())[1]
    assert values["cpu"]["limit"] == float(re.search(r'"STUDENT_CPU": "([\d.]+)"', _start())[1])


def _start():
    return (HUB / "start.py").read_text(encoding="utf-8")
