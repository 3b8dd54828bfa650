//! What a serving process may still ask of the kernel, whoever started it: once disks and sockets are open, it keeps the
//! capabilities that serving takes, and gives up system calls that it never makes. With the files ([`crate::confine`]) that is
//! what is left to somebody who has got hold of a thread that speaks to strangers.
//!
//! The unit of systemd says more strictly what may be done (docs/service.md); this is for who starts dcd by hand. Neither costs
//! a request anything: the kernel remembers which calls a filter lets through whatever they are asked with (Linux 5.11).

use std::collections::BTreeMap;

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

/// Running programs, looking into processes, mounts and name spaces, changing the kernel, its clock and its users' numbers.
const REFUSED: [libc::c_long; 49] = [
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
];

/// Gives up what is not needed, for the calling thread and those that it starts later. What cannot be given up is kept: a
/// kernel that is built without filters is no reason not to serve.
pub(crate) fn give_up(serves_ublk: bool) {
    drop_capabilities(serves_ublk);
    // A filter of the service manager is stricter.
    if !is_filtered() {
        filter_system_calls();
    }
}

fn drop_capabilities(serves_ublk: bool) {
    // Sockets are removed from directories of whoever started it, and certificates read again: of others, files keep it away.
    let mut needed = CapabilitySet::DAC_OVERRIDE;
    // Memory is locked as it comes (--lock-memory), and memory of a ring counts against a limit without.
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

fn is_filtered() -> bool {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    status.lines().any(|line| line == "Seccomp:\t2")
}

fn filter_system_calls() {
    let Ok(architecture) = std::env::consts::ARCH.try_into() else { return };
    let rules: BTreeMap<i64, _> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    let refused = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, architecture);
    let Ok(program) = filter.and_then(BpfProgram::try_from) else { return };
    // It also sees to it that no program that is run later has more rights. Whether it is in force, the kernel is asked.
    let _ = apply_filter(&program);
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind::PermissionDenied;
    use std::process::Command;

    use super::*;

    /// In a thread, which alone is confined.
    fn given_up(serves_ublk: bool) -> CapabilitySet {
        let confined = std::thread::spawn(move || {
            // In a container there may be a filter already, which refuses something else.
            let was_filtered = is_filtered();
            give_up(serves_ublk);
            if was_filtered {
                println!("skipped: system calls are filtered by somebody else");
            } else if is_filtered() {
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
