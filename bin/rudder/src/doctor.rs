//! `rudder doctor`

use crate::exit::{Failure, failed, print_json, say};
use clap::Args;
use rudder_scenarios::run::namespaces_work;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use std::fs;
use std::process::Command;

#[derive(Args)]
#[command(after_help = "Examples:
  rudder doctor
  rudder doctor --json")]
pub struct DoctorArguments {
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// One thing that was looked at.
#[derive(Debug, PartialEq, Serialize)]
struct Finding {
    what: &'static str,
    verdict: Verdict,
    found: String,
    /// What to do, where it is not good.
    fix: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Good,
    /// Slower or less, but it works.
    Lesser,
    Bad,
}

pub fn run(arguments: &DoctorArguments) -> Result<(), Failure> {
    let findings =
        [io_uring(), locked_memory(), memfd(), huge_pages(), node_binary(), cores(), namespaces(), iproute()];
    if arguments.json {
        print_json(&findings)?;
    } else {
        for finding in &findings {
            let mark = match finding.verdict {
                Verdict::Good => "ok  ",
                Verdict::Lesser => "less",
                Verdict::Bad => "BAD ",
            };
            say(format_args!("{mark}  {}: {}", finding.what, finding.found))?;
            if finding.verdict != Verdict::Good {
                say(format_args!("      {}", finding.fix))?;
            }
        }
    }
    let bad = findings.iter().filter(|finding| finding.verdict == Verdict::Bad).count();
    if bad > 0 { Err(failed(format!("{bad} things are missing"))) } else { Ok(()) }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn io_uring() -> Finding {
    let disabled = read("/proc/sys/kernel/io_uring_disabled");
    let filtered = read("/proc/self/status").lines().any(|line| line == "Seccomp:\t2");
    let known = read("/proc/kallsyms").contains(" __x64_sys_io_uring_setup");
    let (verdict, found) = match (disabled.as_str(), filtered) {
        ("2", _) => (Verdict::Lesser, "switched off on this machine".to_owned()),
        ("1", _) => (Verdict::Lesser, "for members of one group only".to_owned()),
        (_, true) => (Verdict::Lesser, "a seccomp filter is active and may refuse it".to_owned()),
        ("", false) if !known => (Verdict::Lesser, "the kernel does not say; it may be too old".to_owned()),
        _ => (Verdict::Good, "allowed".to_owned()),
    };
    Finding {
        what: "io_uring",
        verdict,
        found,
        fix: "sysctl kernel.io_uring_disabled=0, or a container profile that allows io_uring; else nodes use pread, and say so in their ready line",
    }
}

fn locked_memory() -> Finding {
    let limit = getrlimit(Resource::Memlock).current;
    let enough = limit.is_none_or(|bytes| bytes >= 64 << 20) || rustix::process::geteuid().is_root();
    Finding {
        what: "locked memory",
        verdict: if enough { Verdict::Good } else { Verdict::Lesser },
        found: limit.map_or("unlimited".to_owned(), |bytes| format!("{} KiB", bytes >> 10)),
        fix: "ulimit -l 65536 (or LimitMEMLOCK= in the unit), so that io_uring can register its buffers",
    }
}

fn memfd() -> Finding {
    const PROBE_BYTES: u64 = 1 << 20;
    let probe = || -> Result<(), rustix::io::Errno> {
        let flags = rustix::fs::MemfdFlags::CLOEXEC | rustix::fs::MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("rudder-doctor", flags)?;
        rustix::fs::ftruncate(&file, PROBE_BYTES)?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, PROBE_BYTES)?;
        let seals =
            rustix::fs::SealFlags::SHRINK | rustix::fs::SealFlags::GROW | rustix::fs::SealFlags::FUTURE_WRITE;
        rustix::fs::fcntl_add_seals(&file, seals)
    };
    let outcome = probe();
    Finding {
        what: "shared memory",
        verdict: if outcome.is_ok() { Verdict::Good } else { Verdict::Bad },
        found: match outcome {
            Ok(()) => "sealed memfds work".to_owned(),
            Err(errno) => format!("no sealed memfd: {errno}"),
        },
        fix: "Linux 5.1 or newer, and memory for the cache within the container's limit",
    }
}

fn huge_pages() -> Finding {
    let setting = read("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    let chosen = setting.split(['[', ']']).nth(1).unwrap_or("unknown").to_owned();
    let good = ["always", "within_size", "advise", "force"].contains(&chosen.as_str());
    Finding {
        what: "huge pages of shared memory",
        verdict: if good { Verdict::Good } else { Verdict::Lesser },
        found: chosen,
        fix: "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled, for faster gathers from large caches",
    }
}

/// The node binary links hwloc: if it starts, hwloc is there.
fn node_binary() -> Finding {
    let path = std::env::current_exe().map(|path| path.with_file_name("rudder-node")).unwrap_or_default();
    let outcome = Command::new(&path).arg("--version").output();
    let (verdict, found) = match outcome {
        Ok(output) if output.status.success() => {
            (Verdict::Good, String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        Ok(output) => (
            Verdict::Bad,
            String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("it does not start").to_owned(),
        ),
        Err(error) => (Verdict::Bad, format!("{}: {error}", path.display())),
    };
    Finding {
        what: "rudder-node and hwloc",
        verdict,
        found,
        fix: "build it beside this program (cargo build -p rudder-node); it needs libhwloc (apt-get install libhwloc-dev)",
    }
}

fn cores() -> Finding {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Finding {
        what: "cores",
        verdict: if cores >= 4 { Verdict::Good } else { Verdict::Lesser },
        found: format!("{cores} usable"),
        fix: "with fewer than four, movers and trainers share cores: say cores = \"shared\", and do not judge interference",
    }
}

fn namespaces() -> Finding {
    let outcome = namespaces_work();
    Finding {
        what: "network namespaces with tbf",
        verdict: if outcome.is_ok() { Verdict::Good } else { Verdict::Lesser },
        found: outcome.map_or_else(|reason| reason, |()| "work".to_owned()),
        fix: "run scenarios as root with iproute2 installed; else they shape links by a relay process",
    }
}

fn iproute() -> Finding {
    let found =
        ["/usr/sbin/tc", "/sbin/tc", "/usr/bin/tc"].iter().find(|path| std::path::Path::new(path).exists());
    Finding {
        what: "iproute2",
        verdict: if found.is_some() { Verdict::Good } else { Verdict::Lesser },
        found: found.map_or("no tc".to_owned(), |path| (*path).to_owned()),
        fix: "apt-get install iproute2",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_says_how_to_fix_it() {
        for finding in [io_uring(), locked_memory(), memfd(), huge_pages(), node_binary(), cores(), iproute()]
        {
            assert!(!finding.fix.is_empty() && !finding.found.is_empty(), "{finding:?}");
        }
    }
}
