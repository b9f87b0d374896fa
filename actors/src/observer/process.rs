//! This process in `/proc`.

use rudder_messages::report::ProcessLoad;
use rudder_topology::{Bytes, Nanos};

/// The unit of times in `/proc/<pid>/stat`: fixed by the kernel's interface on every architecture that we run on.
const TICKS_PER_SECOND: f64 = 100.0;

/// Remembers the last measurement.
#[derive(Debug, Default)]
pub struct ProcessMeter {
    last: Option<(Nanos, u64)>,
}

impl ProcessMeter {
    /// What the process used since the last call; the first call knows only its memory. What `/proc` does not say
    /// counts as nothing.
    pub fn measure(&mut self, now: Nanos) -> ProcessLoad {
        let ticks = std::fs::read_to_string("/proc/self/stat").ok().and_then(|text| cpu_ticks(&text));
        let resident = std::fs::read_to_string("/proc/self/status").ok().and_then(|text| resident(&text));
        let mut cores_used = 0.0;
        if let (Some(ticks), Some((then, before))) = (ticks, self.last) {
            let seconds = now.0.saturating_sub(then.0) as f64 / 1e9;
            let used = ticks.saturating_sub(before) as f64 / TICKS_PER_SECOND;
            cores_used = if seconds > 0.0 { (used / seconds) as f32 } else { 0.0 };
        }
        self.last = ticks.map(|ticks| (now, ticks));
        ProcessLoad { cores_used, resident: resident.unwrap_or_default() }
    }
}

/// User plus system time from `/proc/<pid>/stat`. The name in parentheses may hold anything, spaces and
/// parentheses too.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let after_name = &stat[stat.rfind(')')? + 1..];
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    user.checked_add(system)
}

/// `VmRSS` of `/proc/<pid>/status`, which is in KiB whatever it says.
fn resident(status: &str) -> Option<Bytes> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes(kib.checked_mul(1024)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_read_by_field() {
        let stat = "12 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 30 12 0 0 20 0 1 0 5 6 7";
        assert_eq!(cpu_ticks(stat), Some(42));
        assert_eq!(resident("Name:\tx\nVmRSS:\t    42 kB\nThreads: 1\n"), Some(Bytes(42 << 10)));
        for bad in ["", ")", "1 (x) S 1 2", "1 (x) S 1 2 3 4 5 6 7 8 9 10 -1 12"] {
            assert_eq!(cpu_ticks(bad), None, "{bad:?}");
        }
        assert_eq!(resident("VmRSS: many kB"), None);
    }

    #[test]
    fn this_process_has_memory() {
        let mut meter = ProcessMeter::default();
        let first = meter.measure(Nanos(0));
        assert!(first.resident > Bytes::KIB && first.cores_used == 0.0, "{first:?}");
        assert!(meter.measure(Nanos(1_000_000_000)).cores_used >= 0.0);
    }
}
