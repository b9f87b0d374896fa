//! The repository's own text, and just enough of a lexer to tell code from comments and strings.

use std::path::{Path, PathBuf};

/// A file's path, relative to the repository with `/`, and its text.
#[derive(Clone, Debug)]
pub struct SourceFile {
    pub path: String,
    pub text: String,
}

/// One broken rule: where and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub path: String,
    /// Counted from 1.
    pub line: usize,
    pub rule: &'static str,
    pub excerpt: String,
}

impl SourceFile {
    #[must_use]
    pub fn new(path: &str, text: &str) -> Self {
        SourceFile { path: path.to_owned(), text: text.to_owned() }
    }

    #[must_use]
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    #[must_use]
    pub fn finding(&self, line: usize, rule: &'static str) -> Finding {
        let excerpt = self.text.lines().nth(line - 1).unwrap_or_default().trim().chars().take(100).collect();
        Finding { path: self.path.clone(), line, rule, excerpt }
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.rule, self.excerpt)
    }
}

/// The repository's root.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in the repository").to_path_buf()
}

/// Every text file of the repository that people write: no build output, no data, no lock file.
#[must_use]
pub fn repository() -> Vec<SourceFile> {
    let root = root();
    let mut files = Vec::new();
    collect(&root, &root, &mut files);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

fn collect(root: &Path, directory: &Path, files: &mut Vec<SourceFile>) {
    for entry in std::fs::read_dir(directory).expect("a readable folder").flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type().expect("a file type");
        if kind.is_dir() {
            let skipped = name.starts_with("target") || (name.starts_with('.') && name != ".ci");
            if !skipped && name != "__pycache__" && name != "proptest-regressions" {
                collect(root, &path, files);
            }
        } else if kind.is_file() && is_written_by_people(&name) {
            let relative = path.strip_prefix(root).expect("below the root");
            // A file that another process just removed or that is not UTF-8 is no source text.
            if let Ok(text) = std::fs::read_to_string(&path) {
                files.push(SourceFile { path: relative.to_string_lossy().replace('\\', "/"), text });
            }
        }
    }
}

fn is_written_by_people(name: &str) -> bool {
    let extensions = [".rs", ".toml", ".md", ".sh", ".html", ".css", ".js"];
    extensions.iter().any(|extension| name.ends_with(extension)) || ["dev", "run"].contains(&name)
}

/// The text with comments and the contents of strings and characters blanked, line by line unchanged.
#[must_use]
pub fn code_only(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            '/' if rest.starts_with("//") => line_comment(rest),
            '/' if rest.starts_with("/*") => block_comment(rest),
            '"' => quoted(rest, 0),
            'r' | 'b' | 'c' if starts_literal(rest) && !ends_in_word(&out) => quoted_with_prefix(rest),
            '\'' => character(rest),
            _ => 0,
        };
        if taken == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            out.extend(rest[..taken].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = &rest[taken..];
        }
    }
    out
}

fn ends_in_word(out: &str) -> bool {
    out.chars().next_back().is_some_and(|c| c.is_alphanumeric() || c == '_')
}

fn line_comment(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

fn block_comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        if text[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if text[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += text[at..].chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// Whether a string literal starts here with one of the prefixes `r`, `b`, `br`, `c`, `cr` and any number of `#`.
fn starts_literal(text: &str) -> bool {
    let prefix = text.find(|c: char| !"rbc".contains(c)).unwrap_or(text.len());
    let after = text[prefix..].trim_start_matches('#');
    prefix <= 2
        && after.starts_with('"')
        && (text[..prefix].contains('r') || after.len() == text.len() - prefix)
}

fn quoted_with_prefix(text: &str) -> usize {
    let quote = text.find('"').expect("checked by the caller");
    if !text[..quote].contains('r') {
        return quoted(text, quote);
    }
    let hashes = text[..quote].matches('#').count();
    let end = format!("\"{}", "#".repeat(hashes));
    text[quote + 1..].find(&end).map_or(text.len(), |at| quote + 1 + at + end.len())
}

/// Length of a string literal whose opening quote is at `quote`, with escapes.
fn quoted(text: &str, quote: usize) -> usize {
    let mut escaped = false;
    for (at, c) in text[quote + 1..].char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return quote + 1 + at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Length of a character literal, 0 for a lifetime.
fn character(text: &str) -> usize {
    let mut inner = text[1..].char_indices();
    match inner.next() {
        Some((_, '\\')) => {
            text[2..].char_indices().skip(1).find(|&(_, c)| c == '\'').map_or(0, |(at, _)| 2 + at + 1)
        }
        Some((_, c)) if text[1 + c.len_utf8()..].starts_with('\'') => 2 + c.len_utf8(),
        _ => 0,
    }
}

/// Whether `word` occurs in the line on its own, not as a piece of a longer identifier.
#[must_use]
pub fn has_word(line: &str, word: &str) -> bool {
    let part_of_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        !part_of_word(line[..at].chars().next_back()) && !part_of_word(line[at + word.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_what_is_not_code_and_keeps_the_lines() {
        let cases = [
            ("let a = 1; // unsafe", "let a = 1;"),
            ("/* unsafe /* nested */ unsafe */ let b", "let b"),
            (r#"let s = "unsafe \" unsafe"; x"#, "let s =  ; x"),
            ("let s = r#\"unsafe \" unsafe\"#; y", "let s =  ; y"),
            ("let s = br\"unsafe\\\"; z", "let s =  ; z"),
            ("let c = '\"'; unsafe", "let c =  ; unsafe"),
            (r"let c = '\''; unsafe", "let c =  ; unsafe"),
            ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
            ("number\"text\"", "number"),
        ];
        for (text, expected) in cases {
            let got = code_only(text);
            let squeeze = |s: &str| s.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(squeeze(&got), squeeze(expected), "{text}");
            assert_eq!(got.chars().count(), text.chars().count());
        }
        assert_eq!(code_only("\"a\nb\"\nc").lines().count(), 3);
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("pub unsafe fn", "unsafe"));
        assert!(!has_word("#![forbid(unsafe_code)]", "unsafe"));
        assert!(!has_word("not_unsafe", "unsafe"));
    }

    proptest::proptest! {
        #[test]
        fn never_panics_and_never_loses_a_line(text in ".{0,200}(['\"/*#rb\\\\\n]{0,40})") {
            proptest::prop_assert_eq!(code_only(&text).matches('\n').count(), text.matches('\n').count());
        }
    }
}
