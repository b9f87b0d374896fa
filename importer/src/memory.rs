//! How much memory the process held at most, and how much it may.

use rudder_topology::Bytes;

/// The highest resident set of this process so far; `None` where the kernel does not say.
#[must_use]
pub fn peak() -> Option<Bytes> {
    parse(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// What an import may hold: eight times the graph's CSC bytes and 256 MiB.
#[must_use]
pub fn limit(csc_bytes: u64) -> Bytes {
    Bytes(csc_bytes.saturating_mul(8).saturating_add(256 << 20))
}

fn parse(status: &str) -> Option<Bytes> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(Bytes(kib << 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_from_the_status_text() {
        assert_eq!(parse("Name:\tx\nVmHWM:\t   1234 kB\nVmRSS:\t 1 kB\n"), Some(Bytes(1234 << 10)));
        assert_eq!(parse("VmHWM: many kB"), None);
        assert_eq!(parse(""), None);
        assert!(peak().is_some_and(|bytes| bytes > Bytes::MIB));
    }
}
