//! What threads of other processes have done, as the kernel counts it.

use std::ops::{Add, Sub};
use std::path::Path;

/// Threads, by the part of the loops that they do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Those that move feature bytes, on storage and compute nodes.
    Movers,
    /// Those of the compute nodes' actors: gateway, predictor, planner, validator.
    Planners,
}

/// CPU time in microseconds, and times that a thread gave its core up or lost it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Work {
    pub cpu_us: f64,
    pub switches: f64,
}

impl Add for Work {
    type Output = Work;

    fn add(self, other: Work) -> Work {
        Work { cpu_us: self.cpu_us + other.cpu_us, switches: self.switches + other.switches }
    }
}

impl Sub for Work {
    type Output = Work;

    fn sub(self, other: Work) -> Work {
        Work { cpu_us: self.cpu_us - other.cpu_us, switches: self.switches - other.switches }
    }
}

/// What a group's threads of these processes have done since they started.
pub fn work(processes: &[i32], group: Group) -> Work {
    let threads = processes.iter().filter_map(|pid| std::fs::read_dir(format!("/proc/{pid}/task")).ok());
    let threads = threads.flatten().filter_map(Result::ok).map(|thread| thread.path());
    threads.filter_map(|thread| of_thread(&thread, group)).fold(Work::default(), Work::add)
}

/// `None` for a thread of another group, and for one that has just ended.
fn of_thread(thread: &Path, group: Group) -> Option<Work> {
    let read = |name: &str| std::fs::read_to_string(thread.join(name)).ok();
    let name = read("comm")?;
    let is_mover = name.contains("-mover") || name.starts_with("pread");
    let belongs = match group {
        Group::Movers => is_mover,
        Group::Planners => name.starts_with("node-c"),
    };
    if !belongs {
        return None;
    }
    // Nanoseconds on a core, nanoseconds in a queue, times on a core.
    let cpu_ns: f64 = read("schedstat")?.split_whitespace().next()?.parse().ok()?;
    let status = read("status")?;
    let counts = status.lines().filter(|line| line.contains("ctxt_switches"));
    let switches = counts.filter_map(|line| line.split_whitespace().last()?.parse::<f64>().ok()).sum();
    Some(Work { cpu_us: cpu_ns / 1e3, switches })
}

/// Processes that wanted a core, over the last minutes.
pub fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").map_or("unknown".to_owned(), |load| load.trim().to_owned())
}
