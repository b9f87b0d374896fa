//! Child processes that never outlive the runner: each in a process group of its own, tied to the runner's life,
//! killed when its guard is dropped. What they print arrives line by line in one channel.

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::stop::Stop;

/// Longer lines are cut: nothing that is meant for the runner is that long.
const LINE_BYTES_MAX: u64 = 4 << 20;
/// Between two looks at the stop flag.
const GLANCE: Duration = Duration::from_millis(100);
/// How much of a log an error quotes.
const QUOTED_LINES: usize = 6;

/// Why a process could not be used.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    #[error("cannot start {name}: {source}")]
    Start { name: String, source: io::Error },
    #[error("cannot write to {name}: {source}")]
    Write { name: String, source: io::Error },
    #[error("{name} ended before its time{log}")]
    Ended { name: String, log: String },
    #[error("{name} did not {what} within {waited:?}{log}")]
    Late { name: String, what: &'static str, waited: Duration, log: String },
    #[error("stopped on request")]
    Stopped,
}

/// Which process of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProcessIndex(pub usize);

/// What a process printed.
#[derive(Debug)]
pub enum Output {
    Line(String),
    /// It closed its standard output.
    End,
}

/// Processes that belong together, and what they print.
pub struct Group {
    launcher: PathBuf,
    processes: Vec<Process>,
    sender: Sender<(ProcessIndex, Output)>,
    receiver: Receiver<(ProcessIndex, Output)>,
}

struct Process {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    log: PathBuf,
    ended: bool,
}

impl Group {
    /// `launcher` is the `rudder` binary, which starts each process by `rudder launch`.
    #[must_use]
    pub fn new(launcher: &Path) -> Self {
        let (sender, receiver) = channel();
        Group { launcher: launcher.to_owned(), processes: Vec::new(), sender, receiver }
    }

    /// Starts a program, with its standard error in `log`. Call it from a thread that lives as long as the runner:
    /// the kernel ties the child to that thread.
    pub fn start<S: AsRef<OsStr>>(
        &mut self,
        name: &str,
        namespace: Option<&Path>,
        command: &[S],
        log: &Path,
    ) -> Result<ProcessIndex, ProcessError> {
        let error = |source| ProcessError::Start { name: name.to_owned(), source };
        let mut launch = Command::new(&self.launcher);
        launch.arg("launch").arg("--parent").arg(std::process::id().to_string());
        if let Some(namespace) = namespace {
            launch.arg("--namespace").arg(namespace);
        }
        launch.arg("--").args(command);
        launch.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let log_file = File::options().create(true).append(true).open(log).map_err(error)?;
        let mut child = launch.stderr(log_file).spawn().map_err(error)?;
        let index = ProcessIndex(self.processes.len());
        let stdout = child.stdout.take().expect("piped");
        let stdin = child.stdin.take();
        self.processes.push(Process {
            name: name.to_owned(),
            child,
            stdin,
            log: log.to_owned(),
            ended: false,
        });
        let sender = self.sender.clone();
        let follow = move || {
            let mut stdout = BufReader::new(stdout);
            while let Some(line) = next_line(&mut stdout) {
                if sender.send((index, Output::Line(line))).is_err() {
                    return;
                }
            }
            let _ = sender.send((index, Output::End));
        };
        std::thread::Builder::new().name(format!("output of {name}")).spawn(follow).map_err(error)?;
        Ok(index)
    }

    /// The next thing that any process says; `None` when `deadline` has passed.
    pub fn next(
        &mut self,
        deadline: Instant,
        stop: &Stop,
    ) -> Result<Option<(ProcessIndex, Output)>, ProcessError> {
        loop {
            if stop.is_raised() {
                return Err(ProcessError::Stopped);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.receiver.recv_timeout(left.min(GLANCE)) {
                Ok((index, output)) => {
                    if matches!(output, Output::End) {
                        self.processes[index.0].ended = true;
                    }
                    return Ok(Some((index, output)));
                }
                Err(RecvTimeoutError::Timeout) if left.is_zero() => return Ok(None),
                Err(_) => {}
            }
        }
    }

    /// The next line of one process. Others must be silent meanwhile, or their lines are lost.
    pub fn line_of(
        &mut self,
        index: ProcessIndex,
        what: &'static str,
        time_out: Duration,
        stop: &Stop,
    ) -> Result<String, ProcessError> {
        let deadline = Instant::now() + time_out;
        loop {
            match self.next(deadline, stop)? {
                Some((from, Output::Line(line))) if from == index => return Ok(line),
                Some((from, Output::End)) => return Err(self.ended(from)),
                Some(_) => {}
                None => return Err(self.late(index, what, time_out)),
            }
        }
    }

    pub fn write_line(&mut self, index: ProcessIndex, line: &str) -> Result<(), ProcessError> {
        let process = &mut self.processes[index.0];
        let name = &process.name;
        let error = |source| ProcessError::Write { name: name.clone(), source };
        let stdin = process.stdin.as_mut().ok_or_else(|| error(io::ErrorKind::BrokenPipe.into()))?;
        stdin
            .write_all(line.as_bytes())
            .and_then(|()| stdin.write_all(b"\n"))
            .and_then(|()| stdin.flush())
            .map_err(error)
    }

    #[must_use]
    pub fn name(&self, index: ProcessIndex) -> &str {
        &self.processes[index.0].name
    }

    #[must_use]
    pub fn process_id(&self, index: ProcessIndex) -> u32 {
        self.processes[index.0].child.id()
    }

    /// Asks a process to end, by SIGTERM.
    pub fn terminate(&mut self, index: ProcessIndex) {
        if let Some(pid) = pid(&self.processes[index.0].child) {
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    #[must_use]
    pub fn ended(&self, index: ProcessIndex) -> ProcessError {
        let process = &self.processes[index.0];
        ProcessError::Ended { name: process.name.clone(), log: quote(&process.log) }
    }

    #[must_use]
    pub fn late(&self, index: ProcessIndex, what: &'static str, waited: Duration) -> ProcessError {
        let process = &self.processes[index.0];
        ProcessError::Late { name: process.name.clone(), what, waited, log: quote(&process.log) }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for process in &mut self.processes {
            // Its group may hold what it started itself; its own id is not reused before it was waited for.
            if let Some(pid) = pid(&process.child) {
                let _ = kill_process_group(pid, Signal::KILL);
            }
        }
        for process in &mut self.processes {
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
    }
}

fn pid(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()).ok()?)
}

fn next_line(stdout: &mut impl BufRead) -> Option<String> {
    let mut line = Vec::new();
    let read = stdout.take(LINE_BYTES_MAX).read_until(b'\n', &mut line).ok()?;
    if read == 0 {
        return None;
    }
    while line.last().is_some_and(|byte| b"\r\n".contains(byte)) {
        line.pop();
    }
    Some(String::from_utf8_lossy(&line).into_owned())
}

/// The last lines of a log, for an error message.
fn quote(log: &Path) -> String {
    const TAIL_BYTES: u64 = 8 << 10;
    let read = || -> io::Result<String> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        io::Seek::seek(&mut file, io::SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut tail = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut tail)?;
        Ok(String::from_utf8_lossy(&tail).into_owned())
    };
    let tail = read().unwrap_or_default();
    let lines: Vec<&str> = tail.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return String::new();
    }
    let from = lines.len().saturating_sub(QUOTED_LINES);
    format!("; it said:\n    {}", lines[from..].join("\n    "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_quoted_from_their_end() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        assert_eq!(quote(&log), "");
        let text: String = (0..5000).map(|n| format!("line {n}\n\n")).collect();
        std::fs::write(&log, text).unwrap();
        let quoted = quote(&log);
        assert!(quoted.ends_with("line 4999") && quoted.matches("line").count() == QUOTED_LINES, "{quoted}");
    }

    #[test]
    fn lines_end_at_their_end_and_are_bounded() {
        let mut input = io::Cursor::new(b"one\r\n\ntwo".to_vec());
        let lines: Vec<_> = std::iter::from_fn(|| next_line(&mut input)).collect();
        assert_eq!(lines, ["one", "", "two"]);
        let mut long = io::Cursor::new(vec![b'x'; LINE_BYTES_MAX as usize + 5]);
        assert_eq!(next_line(&mut long).map(|line| line.len()), Some(LINE_BYTES_MAX as usize));
    }
}
