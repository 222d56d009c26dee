"""What a submission may not ask of the kernel: a filter for bubblewrap, compiled by libseccomp.

Inside the walls most of this has no effect, or takes memory that nothing limits. No computation needs it.
"""

import ctypes
import ctypes.util
import errno
import tempfile
from functools import cache

ALLOW, KILL = 0x7FFF0000, 0x80000000  # SCMP_ACT_ALLOW, SCMP_ACT_KILL_PROCESS of seccomp.h
BAD_ARCHITECTURE = 2  # SCMP_FLTATR_ACT_BADARCH
GREATER, MASKED_EQUAL = 6, 7  # SCMP_CMP_GT, SCMP_CMP_MASKED_EQ
CLONE_NEWUSER = 0x10000000
AF_INET6 = 10  # families above it: netlink, packets, the kernel's cryptography, the hypervisor

# Each group as in the kernel's manual: https://man7.org/linux/man-pages/man2/syscalls.2.html
REFUSED = {
    "other processes": "ptrace process_vm_readv process_vm_writev pidfd_getfd kcmp process_madvise",
    "memory of no process": "memfd_create memfd_secret shmget shmat shmctl msgget semget mq_open",
    "ways around this filter": "io_uring_setup io_uring_enter io_uring_register",
    "keys": "add_key request_key keyctl",
    "namespaces and mounts": "unshare setns mount umount2 pivot_root chroot open_tree move_mount fsopen "
    "fsconfig fsmount fspick mount_setattr",
    "the kernel itself": "bpf perf_event_open userfaultfd kexec_load init_module finit_module delete_module "
    "acct quotactl syslog lookup_dcookie fanotify_init name_to_handle_at open_by_handle_at",
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

    What is refused fails with ``EPERM``; ``clone3``, whose arguments no filter can read, with ``ENOSYS``, at
    which the C library takes ``clone``.

    Raises:
        OSError: libseccomp is missing, or cannot do this.
    """
    found = ctypes.util.find_library("seccomp")
    if found is None:
        raise OSError("libseccomp is not installed (on Debian and Ubuntu: apt install libseccomp2)")
    library = ctypes.CDLL(found)
    library.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(ALLOW)))

    def do(code: int, what: str) -> None:
        if code < 0:
            raise OSError(-code, f"libseccomp: {what}")

    def refuse(name: str, error: int = errno.EPERM, *comparison: int) -> None:
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number == -1:
            raise OSError(errno.ENOSYS, f"this libseccomp is too old to know {name}")
        compared = (_Comparison * 1)(_Comparison(*comparison))
        action = ctypes.c_uint32(0x00050000 | error)  # SCMP_ACT_ERRNO
        do(library.seccomp_rule_add_array(rules, action, number, int(bool(comparison)), compared), name)

    do(library.seccomp_attr_set(rules, BAD_ARCHITECTURE, ctypes.c_uint32(KILL)), "another architecture")
    for name in " ".join(REFUSED.values()).split():
        refuse(name)
    refuse("clone3", errno.ENOSYS)
    refuse("clone", errno.EPERM, 0, MASKED_EQUAL, CLONE_NEWUSER, CLONE_NEWUSER)
    refuse("socket", errno.EPERM, 0, GREATER, AF_INET6)
    with tempfile.TemporaryFile() as file:
        do(library.seccomp_export_bpf(rules, file.fileno()), "export")
        library.seccomp_release(rules)
        file.seek(0)
        return file.read()
