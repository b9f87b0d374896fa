//! The machine that the numbers come from.

use std::fs;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Machine {
    pub cpu: String,
    pub cores: u32,
    pub memory_bytes: u64,
    pub kernel: String,
}

pub(super) fn this_machine() -> Machine {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    Machine {
        cpu: cpu_in(&read("/proc/cpuinfo")).unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32),
        memory_bytes: memory_in(&read("/proc/meminfo")).unwrap_or(0),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
    }
}

fn cpu_in(cpuinfo: &str) -> Option<String> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn memory_in(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        let cpuinfo = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n";
        assert_eq!(cpu_in(cpuinfo).as_deref(), Some("Some CPU @ 2 GHz"));
        assert_eq!(memory_in("MemTotal:       1000 kB\nMemFree: 1 kB\n"), Some(1_024_000));
        assert_eq!((cpu_in(""), memory_in("MemTotal: x kB"), memory_in("")), (None, None, None));
    }
}
