//! How much memory the machine, and the process's memory cgroups, can still give.

use std::path::Path;

/// The least of what the machine and the cgroups above this process say; `None` where nothing says.
pub(super) fn bytes() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| in_meminfo(&text));
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok();
    let group = groups.as_deref().and_then(group_path).and_then(in_groups_above);
    [machine, group].into_iter().flatten().min()
}

pub(super) fn in_meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The path of the process in the unified hierarchy.
pub(super) fn group_path(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::"))
}

fn in_groups_above(path: &str) -> Option<u64> {
    let root = Path::new("/sys/fs/cgroup");
    let group = root.join(path.trim_start_matches('/'));
    let read = |group: &Path, file: &str| std::fs::read_to_string(group.join(file)).unwrap_or_default();
    group
        .ancestors()
        .take_while(|group| group.starts_with(root))
        .filter_map(|group| {
            let files = ["memory.max", "memory.current", "memory.stat"].map(|file| read(group, file));
            in_group(&files[0], &files[1], &files[2])
        })
        .min()
}

/// What a group with these files may still take, what it can drop of its page cache included; `None` where it has
/// no bound.
pub(super) fn in_group(max: &str, current: &str, stat: &str) -> Option<u64> {
    let max: u64 = max.trim().parse().ok()?;
    let current: u64 = current.trim().parse().ok()?;
    let file = |key: &str| -> u64 {
        stat.lines().find_map(|line| line.strip_prefix(key)?.trim().parse().ok()).unwrap_or(0)
    };
    let droppable = file("inactive_file ").saturating_add(file("active_file "));
    Some(max.saturating_sub(current.saturating_sub(droppable)))
}
