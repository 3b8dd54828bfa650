//! What a serving process may still ask of the kernel, whoever started it: once disks and sockets
//! are open, it keeps the capabilities that serving takes, and gives up system calls that it never
//! makes. With the files ([`crate::process::confine`]) that is what is left to somebody who has got
//! hold of a thread that speaks to strangers.
//!
//! The unit of systemd says more strictly what may be done (docs/service.md); this is for who
//! starts dcd by hand. Neither costs a request anything: the kernel remembers which calls a filter
//! lets through whatever they are asked with (Linux 5.11).

use std::collections::BTreeMap;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

/// Running programs, looking into processes and signals to them, mounts and name spaces, changing
/// the kernel, its clock and its users' numbers, sockets (all are there), rights and times of files
/// (Landlock knows none of that), memory of System V.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsmount,
    libc::SYS_fsconfig,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_open_by_handle_at,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_personality,
    libc::SYS_setuid,
    libc::SYS_setgid,
    libc::SYS_setreuid,
    libc::SYS_setregid,
    libc::SYS_setresuid,
    libc::SYS_setresgid,
    libc::SYS_setgroups,
    libc::SYS_capset,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_tkill,
    libc::SYS_socket,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchmodat2,
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    // Not fsetxattr: the record of the pair on a data-disk that is a file is written through what
    // is open (pair/book.rs).
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    libc::SYS_utimensat,
    libc::SYS_name_to_handle_at,
    libc::SYS_fanotify_init,
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_process_madvise,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
];

/// The older ways for what is refused above.
#[cfg(target_arch = "x86_64")]
const REFUSED_HERE: &[libc::c_long] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_iopl,
    libc::SYS_ioperm,
];
#[cfg(not(target_arch = "x86_64"))]
const REFUSED_HERE: &[libc::c_long] = &[];

/// Of Linux; not among the constants of the crate.
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;

/// Name spaces of a child.
const CLONE_NEW: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP) as u64;

/// Gives up what is not needed, for the calling thread and those that it starts later. What cannot
/// be given up is kept: a kernel that is built without filters is no reason not to serve.
pub(crate) fn give_up(serves_ublk: bool) {
    drop_capabilities(serves_ublk);
    // Beside that of a service manager, which allows more than serving takes: whatever one of them
    // refuses is refused.
    filter_system_calls(serves_ublk);
}

fn drop_capabilities(serves_ublk: bool) {
    // Sockets are removed from directories of whoever started it, and certificates read again: of
    // others, files keep it away.
    let mut needed = CapabilitySet::DAC_OVERRIDE;
    // Memory is locked as it comes (--lock-memory), and memory of a ring counts against a limit
    // without.
    needed |= CapabilitySet::IPC_LOCK;
    if serves_ublk {
        // Only who has it may make, take over and remove a device.
        needed |= CapabilitySet::SYS_ADMIN;
    }
    let Ok(held) = capabilities(None) else { return };
    let kept = CapabilitySets {
        effective: held.effective & needed,
        permitted: held.permitted & needed,
        inheritable: CapabilitySet::empty(),
    };
    // Less than one holds can always be had.
    let _ = set_capabilities(None, kept);
}

fn filter_system_calls(serves_ublk: bool) {
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    // It also sees to it that no program that is run later has more rights. Whether it is in force,
    // the kernel is asked.
    if let Some(rules) = rules(serves_ublk) {
        apply(rules, refused);
    }
    // Its flags cannot be looked at. Who asks for it falls back on `clone`, whose flags can.
    let unknown = SeccompAction::Errno(libc::ENOSYS as u32);
    apply([(libc::SYS_clone3, Vec::new())].into(), unknown);
}

fn rules(serves_ublk: bool) -> Option<BTreeMap<i64, Vec<SeccompRule>>> {
    use SeccompCmpOp::{Eq, MaskedEq, Ne};
    let number = || SeccompCmpArgLen::Dword;
    let of = |argument, length, operator, value| {
        let condition = SeccompCondition::new(argument, length, operator, value).ok()?;
        SeccompRule::new(vec![condition]).ok()
    };
    let own = u64::from(std::process::id());
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().chain(REFUSED_HERE).map(|call| (*call, Vec::new())).collect();
    // A ring of one's own would do all that is refused here. Those of ublk are made later.
    if !serves_ublk {
        rules.insert(libc::SYS_io_uring_setup, Vec::new());
    }
    // Signals to ourselves: an assertion that fails ends the process.
    rules.insert(libc::SYS_kill, vec![of(0, number(), Ne, own)?]);
    rules.insert(libc::SYS_tgkill, vec![of(0, number(), Ne, own)?]);
    // Signals by way of a file that is ready.
    let owner_of_file = [libc::F_SETOWN, F_SETSIG, F_SETOWN_EX];
    let owner_of_file = owner_of_file.map(|command| of(1, number(), Eq, command as u64));
    rules.insert(libc::SYS_fcntl, owner_of_file.into_iter().collect::<Option<_>>()?);
    // Words put into the mouth of whoever has the terminal.
    let terminal = [libc::TIOCSTI, libc::TIOCLINUX].map(|command| of(1, number(), Eq, command));
    rules.insert(libc::SYS_ioctl, terminal.into_iter().collect::<Option<_>>()?);
    // To a socket that it is not connected to.
    rules.insert(libc::SYS_sendto, vec![of(4, SeccompCmpArgLen::Qword, Ne, 0)?]);
    let new: Option<Vec<SeccompRule>> = (0..u64::BITS)
        .map(|bit| 1 << bit)
        .filter(|flag| CLONE_NEW & flag != 0)
        .map(|flag| of(0, SeccompCmpArgLen::Qword, MaskedEq(flag), flag))
        .collect();
    rules.insert(libc::SYS_clone, new?);
    // Limits of others.
    let of_others = SeccompRule::new(vec![
        SeccompCondition::new(0, number(), Ne, 0).ok()?,
        SeccompCondition::new(0, number(), Ne, own).ok()?,
    ]);
    rules.insert(libc::SYS_prlimit64, vec![of_others.ok()?]);
    Some(rules)
}

fn apply(rules: BTreeMap<i64, Vec<SeccompRule>>, refused: SeccompAction) {
    let Ok(architecture) = std::env::consts::ARCH.try_into() else { return };
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, architecture);
    let Ok(program) = filter.and_then(BpfProgram::try_from) else { return };
    let _ = apply_filter(&without_x32(program));
}

/// On x86 the calls have a second set of numbers, for which the program would have no rule.
fn without_x32(program: BpfProgram) -> BpfProgram {
    if !cfg!(target_arch = "x86_64") {
        return program;
    }
    let step = |code, jt, jf, k| seccompiler::sock_filter { code, jt, jf, k };
    let mut whole = vec![
        // The number of the call; if it has the bit of the second set, EPERM.
        step(0x20, 0, 0, 0),
        step(0x35, 0, 1, 0x4000_0000),
        step(0x06, 0, 0, 0x0005_0000 | libc::EPERM as u32),
    ];
    whole.extend(program);
    whole
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind::PermissionDenied;
    use std::process::Command;

    use super::*;

    fn is_filtered() -> bool {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        status.lines().any(|line| line == "Seccomp:\t2")
    }

    /// In a thread, which alone is confined.
    fn given_up(serves_ublk: bool) -> CapabilitySet {
        let confined = std::thread::spawn(move || {
            give_up(serves_ublk);
            if is_filtered() {
                let denied = Command::new("/bin/true").status().unwrap_err();
                assert_eq!(denied.kind(), PermissionDenied);
                assert!(set_capabilities(None, capabilities(None).unwrap()).is_err());
                // Threads that are started later are the same.
                std::thread::spawn(|| assert!(is_filtered())).join().unwrap();
            } else {
                println!("skipped: this kernel filters no system calls");
            }
            std::fs::read("/proc/self/status").unwrap();
            capabilities(None).unwrap().permitted
        });
        confined.join().unwrap()
    }

    #[test]
    fn only_what_serving_takes_is_left() {
        let before = capabilities(None).unwrap().permitted;
        let always = CapabilitySet::DAC_OVERRIDE | CapabilitySet::IPC_LOCK;
        assert_eq!(given_up(false), before & always);
        assert_eq!(given_up(true), before & (always | CapabilitySet::SYS_ADMIN));
        assert_eq!(capabilities(None).unwrap().permitted, before);
        assert!(Command::new("/bin/true").status().is_ok_and(|status| status.success()));
    }
}
