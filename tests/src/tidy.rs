//! Rules about the repository's text. Each is a function from one file to its findings, so that a test can
//! feed it a file that breaks it.

use crate::source::{Finding, SourceFile, code_only, has_word};

/// The one file that waits by the wall clock, and the one that measures a time from below (what a rate limiter makes
/// slower can be shown in no other way, and a busy machine only makes it slower still).
const CLOCK_FILES: [&str; 2] = ["tests/src/process/wait.rs", "dataplane/tests/movers/serving.rs"];

/// A rule over one file.
pub type Rule = fn(&SourceFile) -> Vec<Finding>;

/// Every rule of this module.
pub const RULES: [Rule; 10] = [
    whitespace,
    module_files,
    unfinished,
    unsafe_code,
    safety_comments,
    clocks_in_tests,
    foreign_places,
    scenarios_have_no_policy,
    messages_carry_no_features,
    bare_ids,
];

/// Every finding of every rule.
#[must_use]
pub fn check(files: &[SourceFile]) -> Vec<Finding> {
    files.iter().flat_map(|file| RULES.iter().flat_map(move |rule| rule(file))).collect()
}

/// Findings for every line of code (comments and strings blanked) that `breaks` the rule.
fn in_code(file: &SourceFile, rule: &'static str, breaks: impl Fn(&str) -> bool) -> Vec<Finding> {
    if !file.is_rust() {
        return Vec::new();
    }
    let code = code_only(&file.text);
    code.lines()
        .enumerate()
        .filter(|(_, line)| breaks(line))
        .map(|(at, _)| file.finding(at + 1, rule))
        .collect()
}

/// No tabs, no trailing blanks, no carriage returns; the file ends with a newline.
pub fn whitespace(file: &SourceFile) -> Vec<Finding> {
    const RULE: &str = "stray whitespace";
    let stray = |line: &str| line.contains(['\t', '\r']) || line.ends_with(' ');
    let mut findings: Vec<_> = (file.text.split('\n').enumerate())
        .filter(|(_, line)| stray(line))
        .map(|(at, _)| file.finding(at + 1, RULE))
        .collect();
    if !file.text.is_empty() && !file.text.ends_with('\n') {
        findings.push(file.finding(file.text.lines().count(), "no newline at the end"));
    }
    findings
}

/// A module is `name.rs` beside `name/`.
pub fn module_files(file: &SourceFile) -> Vec<Finding> {
    if file.path.ends_with("/mod.rs") { vec![file.finding(1, "a mod.rs")] } else { Vec::new() }
}

/// Nothing unfinished, nothing left from debugging, no test that is not run.
pub fn unfinished(file: &SourceFile) -> Vec<Finding> {
    let mut findings = in_code(file, "unfinished or left over", |line| {
        ["todo!", "unimplemented!", "dbg!", "#[ignore]"].iter().any(|name| line.contains(name))
    });
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    for (at, line) in file.text.lines().enumerate() {
        if marks.iter().any(|mark| has_word(line, mark)) {
            findings.push(file.finding(at + 1, "unfinished place"));
        }
    }
    findings
}

/// `unsafe` stands only where DESIGN allows it.
pub fn unsafe_code(file: &SourceFile) -> Vec<Finding> {
    // `python` is the border to Python's buffers.
    let allowed = ["client/", "dataplane/", "python/src/"];
    if allowed.iter().any(|start| file.path.starts_with(start)) {
        return Vec::new();
    }
    in_code(file, "unsafe outside client, dataplane and the Python glue", |line| has_word(line, "unsafe"))
}

/// Every `unsafe` block or impl is justified by a `SAFETY:` comment on it or in the lines above.
pub fn safety_comments(file: &SourceFile) -> Vec<Finding> {
    const LINES_ABOVE: usize = 8;
    let text: Vec<_> = file.text.lines().collect();
    let mut findings = in_code(file, "unsafe without a SAFETY comment", |line| {
        line.contains("unsafe {") || line.contains("unsafe impl")
    });
    findings.retain(|finding| {
        let from = finding.line.saturating_sub(1 + LINES_ABOVE);
        !text[from..finding.line].iter().any(|line| line.contains("SAFETY:"))
    });
    findings
}

/// The lines of a file that are test code: the whole file in a `tests` folder or a `tests.rs`, else from the
/// line with the test module's attribute on.
fn first_test_line(file: &SourceFile) -> Option<usize> {
    let path = &file.path;
    if path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs") {
        return Some(1);
    }
    let lines: Vec<_> = file.text.lines().collect();
    let is_module =
        |at: usize| lines[at..].iter().skip(1).take(3).any(|line| line.trim_start().starts_with("mod "));
    (0..lines.len()).find(|&at| lines[at].trim() == "#[cfg(test)]" && is_module(at)).map(|at| at + 1)
}

/// Tests await conditions; only the shared `await_until` looks at the clock.
pub fn clocks_in_tests(file: &SourceFile) -> Vec<Finding> {
    let Some(first) = first_test_line(file) else { return Vec::new() };
    if CLOCK_FILES.contains(&file.path.as_str()) {
        return Vec::new();
    }
    let banned = ["thread::sleep", "time::sleep(", "Instant::now", "SystemTime::now"];
    let mut findings =
        in_code(file, "clock or sleep in a test", |line| banned.iter().any(|name| line.contains(name)));
    findings.retain(|finding| finding.line >= first);
    findings
}

/// No path of the machine it was written on, no address of a package registry.
pub fn foreign_places(file: &SourceFile) -> Vec<Finding> {
    let places = [
        concat!("/wo", "rk/"),
        concat!("/ro", "ot/"),
        concat!("/ho", "me/"),
        concat!("index.crates", ".io"),
        concat!("static.crates", ".io"),
        concat!("pypi", ".org"),
        concat!("npmjs", ".org"),
        concat!("deb.debian", ".org"),
    ];
    let mut findings = Vec::new();
    for (at, line) in file.text.lines().enumerate() {
        if places.iter().any(|place| line.contains(place)) {
            findings.push(file.finding(at + 1, "a place of one machine or registry"));
        }
    }
    findings
}

/// The runner swaps policies by name; it never has one of its own.
pub fn scenarios_have_no_policy(file: &SourceFile) -> Vec<Finding> {
    if !file.path.starts_with("scenarios/") {
        return Vec::new();
    }
    in_code(file, "a policy outside the policy crate", |line| {
        has_word(line, "impl") && line.contains("Policy for")
    })
}

/// Actor messages hold ids, numbers and names; bytes travel on the data plane. Only the codec sees bytes, and the
/// answer to another node's question, which the runtime wants encoded already.
pub fn messages_carry_no_features(file: &SourceFile) -> Vec<Finding> {
    let codec = file.path.starts_with("messages/src/codec");
    if codec || !file.path.starts_with("messages/src/") {
        return Vec::new();
    }
    let until = first_test_line(file).unwrap_or(usize::MAX);
    let bytes = ["Vec<u8>", "Box<[u8]>", "Arc<[u8]>", "serde_bytes", "ByteBuf", "Cow<[u8]>"];
    let mut findings = in_code(file, "bytes in an actor message", |line| {
        let line = line.replace("RpcReplyPort<Vec<u8>>", "");
        bytes.iter().any(|name| line.contains(name))
    });
    findings.retain(|finding| finding.line < until);
    findings
}

/// What public signatures call by the name of an id has the id's type. An index is none: a `usize`, or one
/// documented as such.
pub fn bare_ids(file: &SourceFile) -> Vec<Finding> {
    const NAMES: [&str; 8] = ["node", "block", "part", "table", "vertex", "transfer", "slot", "generation"];
    const BARE: [&str; 6] = ["u8", "u16", "u32", "u64", "String", "&str"];
    let private =
        ["pub struct", "pub enum", "pub trait", "\npub fn"].iter().all(|item| !file.text.contains(item))
            && file.text.contains("pub(super)");
    if private || !file.path.contains("/src/") || file.path.starts_with("bin/") {
        return Vec::new();
    }
    let until = first_test_line(file).unwrap_or(usize::MAX);
    let breaks = |line: &str| {
        let line = line.trim_start();
        let public = line.starts_with("pub ");
        public
            && line.split(['(', ',']).any(|piece| {
                let Some((name, kind)) = piece.split_once(':') else { return false };
                let name = name.trim().trim_start_matches("pub ").trim();
                let name = name.strip_suffix("_id").unwrap_or(name);
                let kind = kind.split(')').next().unwrap_or_default().trim();
                NAMES.contains(&name) && BARE.contains(&kind)
            })
    };
    let text: Vec<_> = file.text.lines().collect();
    let is_index = |line: usize| line > 1 && text[line - 2].trim_start().starts_with("/// Index ");
    let mut findings = in_code(file, "an id as a bare integer or string in public", breaks);
    findings.retain(|finding| finding.line < until && !is_index(finding.line));
    findings
}
