"""What a submission may ask of the kernel: a filter for bubblewrap, compiled by libseccomp.

The system calls of Linux 5.11 that are not listed below are allowed. Newer ones do not exist inside, as if
the kernel were older: programs can work without them.
"""

import ctypes
import ctypes.util
import errno
import tempfile
from functools import cache

ALLOW, KILL = 0x7FFF0000, 0x80000000  # SCMP_ACT_ALLOW, SCMP_ACT_KILL_PROCESS of seccomp.h
BAD_ARCHITECTURE, OPTIMIZE = 2, 8  # SCMP_FLTATR_ACT_BADARCH, SCMP_FLTATR_CTL_OPTIMIZE: a tree of comparisons
LESS, EQUAL, MASKED_EQUAL = 2, 4, 7  # SCMP_CMP_LT, SCMP_CMP_EQ, SCMP_CMP_MASKED_EQ
NEWEST = 441  # epoll_pwait2, of Linux 5.11: the same number on x86-64 and aarch64
NEW_NAMESPACES = 0x7E020080  # the flags CLONE_NEW... of sched.h, together
AF_UNIX, AF_INET, AF_INET6 = 1, 2, 10
F_GETLK, F_DUPFD_CLOEXEC = 5, 1030  # in between: locks, leases and news of other processes

REFUSED = {
    "other processes": "ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp process_madvise",
    "memory of no process": "memfd_create shmget shmat shmctl msgget semget mq_open vmsplice splice tee "
    "io_setup io_submit setxattr lsetxattr fsetxattr",
    "ways around this filter": "io_uring_setup io_uring_enter io_uring_register",
    "keys": "add_key request_key keyctl",
    "namespaces and mounts": "unshare setns mount umount2 pivot_root chroot open_tree move_mount fsopen "
    "fsconfig fsmount fspick mount_setattr swapon swapoff",
    "what other processes do with files": "inotify_init inotify_init1 fanotify_init fanotify_mark flock",
    "the kernel itself": "bpf perf_event_open userfaultfd kexec_load kexec_file_load init_module "
    "finit_module delete_module acct quotactl syslog lookup_dcookie name_to_handle_at open_by_handle_at "
    "reboot iopl ioperm modify_ldt mbind set_mempolicy migrate_pages move_pages sysfs uselib settimeofday "
    "clock_settime adjtimex clock_adjtime sethostname setdomainname vhangup",
}


class _Comparison(ctypes.Structure):  # scmp_arg_cmp of seccomp.h
    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("datum_a", ctypes.c_uint64),
        ("datum_b", ctypes.c_uint64),
    )


@cache
def program() -> bytes:
    """The filter as the kernel takes it: instructions of BPF.

    A listed call fails with ``EPERM``, an unknown one with ``ENOSYS``. ``clone3``, whose arguments no
    filter can read, also fails with ``ENOSYS``; the C library then uses ``clone``.

    Raises:
        OSError: libseccomp is missing, or cannot do this.
    """
    found = ctypes.util.find_library("seccomp")
    if found is None:
        raise OSError("libseccomp is not installed (on Debian and Ubuntu: apt install libseccomp2)")
    library = ctypes.CDLL(found)
    library.seccomp_init.restype = library.seccomp_syscall_resolve_num_arch.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(_error(errno.ENOSYS))))

    def do(code: int, what: str) -> None:
        if code < 0:
            raise OSError(-code, f"libseccomp: {what}")

    def rule(action: int, number: int, *comparison: int) -> None:
        compared = (_Comparison * 1)(_Comparison(*comparison))
        many = int(bool(comparison))
        do(
            library.seccomp_rule_add_array(rules, ctypes.c_uint32(action), number, many, compared),
            str(number),
        )

    do(library.seccomp_attr_set(rules, BAD_ARCHITECTURE, ctypes.c_uint32(KILL)), "another architecture")
    library.seccomp_attr_set(rules, OPTIMIZE, ctypes.c_uint32(2))  # since 2.5; only faster
    refused = set(" ".join(REFUSED.values()).split())
    for number in range(NEWEST + 1):
        name = ctypes.string_at(known).decode() if (known := _name(library, number)) else None
        if name == "clone":
            rule(ALLOW, number, 0, MASKED_EQUAL, NEW_NAMESPACES, 0)
        elif name in ("socket", "socketpair"):
            for family in (AF_UNIX, AF_INET, AF_INET6) if name == "socket" else (AF_UNIX,):
                rule(ALLOW, number, 0, EQUAL, family)
        elif name == "fcntl":
            rule(ALLOW, number, 1, LESS, F_GETLK)
            rule(ALLOW, number, 1, EQUAL, F_DUPFD_CLOEXEC)
        elif name in refused:
            rule(_error(errno.EPERM), number)
        elif name not in (None, "clone3"):
            rule(ALLOW, number)
    with tempfile.TemporaryFile() as file:
        do(library.seccomp_export_bpf(rules, file.fileno()), "export")
        library.seccomp_release(rules)
        file.seek(0)
        return file.read()


def _error(number: int) -> int:
    """SCMP_ACT_ERRNO: the call fails with this number."""
    return 0x00050000 | number


def _name(library: ctypes.CDLL, number: int) -> int | None:
    """A pointer to the name of this call on this machine, if there is one."""
    architecture = library.seccomp_arch_native()
    return library.seccomp_syscall_resolve_num_arch(ctypes.c_uint32(architecture), number)
