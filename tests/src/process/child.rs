//! A child process that never outlives its test, with its output kept line by line.

use super::wait::{Late, await_until};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// A running child; killed when dropped.
#[derive(Debug)]
pub struct Child {
    name: String,
    inner: std::process::Child,
    stdout: Lines,
    stderr: Lines,
}

/// How a child ended, with all that it said.
#[derive(Debug)]
pub struct Exit {
    pub status: ExitStatus,
    pub stdout: Vec<String>,
    pub stderr: Vec<String>,
}

#[derive(Clone, Debug, Default)]
struct Lines(Arc<Mutex<Collected>>);

#[derive(Debug, Default)]
struct Collected {
    lines: Vec<String>,
    ended: bool,
}

impl Lines {
    fn follow(&self, stream: impl Read + Send + 'static) {
        let lines = self.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                lines.lock().lines.push(line);
            }
            lines.lock().ended = true;
        });
    }

    fn lock(&self) -> MutexGuard<'_, Collected> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Child {
    /// Starts the command with its output piped.
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start(name: &str, command: &mut Command) -> Self {
        Child::start_with(name, command, Stdio::null())
    }

    /// Starts a command that takes orders, see [`Child::order`].
    ///
    /// # Panics
    /// If it cannot be started.
    #[must_use]
    pub fn start_with_orders(name: &str, command: &mut Command) -> Self {
        Child::start_with(name, command, Stdio::piped())
    }

    fn start_with(name: &str, command: &mut Command, stdin: Stdio) -> Self {
        command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut inner = command.spawn().unwrap_or_else(|error| panic!("starting {name}: {error}"));
        let (stdout, stderr) = (Lines::default(), Lines::default());
        stdout.follow(inner.stdout.take().expect("piped"));
        stderr.follow(inner.stderr.take().expect("piped"));
        Child { name: name.to_owned(), inner, stdout, stderr }
    }

    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.inner)
    }

    /// Waits for a line of standard output that `wanted` makes something of.
    ///
    /// # Panics
    /// If the child ends first or the deadline passes; the message holds its output.
    pub fn await_line<T>(&mut self, wanted: impl Fn(&str) -> Option<T>, deadline: Duration) -> T {
        let mut seen = 0;
        let stdout = self.stdout.clone();
        let found = await_until(
            || {
                let collected = stdout.lock();
                let found = collected.lines[seen..].iter().find_map(|line| wanted(line));
                seen = collected.lines.len();
                found.map(Some).or_else(|| collected.ended.then_some(None))
            },
            deadline,
        );
        match found {
            Ok(Some(value)) => value,
            Ok(None) => panic!("{} ended its output without the line\n{}", self.name, self.said()),
            Err(late) => panic!("{}: the line was {late}\n{}", self.name, self.said()),
        }
    }

    /// Waits for a line of standard error that contains the text.
    ///
    /// # Panics
    /// If the child ends first or the deadline passes; the message holds its output.
    pub fn await_said(&mut self, text: &str, deadline: Duration) {
        let stderr = self.stderr.clone();
        let found = await_until(
            || {
                let collected = stderr.lock();
                let found = collected.lines.iter().any(|line| line.contains(text));
                (found || collected.ended).then_some(found)
            },
            deadline,
        );
        match found {
            Ok(true) => {}
            Ok(false) => panic!("{} ended without saying `{text}`\n{}", self.name, self.said()),
            Err(late) => panic!("{}: `{text}` was {late}\n{}", self.name, self.said()),
        }
    }

    /// Gives it a line of standard input.
    ///
    /// # Panics
    /// If it was not started for orders, or is gone.
    pub fn order(&mut self, line: &str) {
        let stdin = self.inner.stdin.as_mut().expect("a child that takes orders");
        writeln!(stdin, "{line}").unwrap_or_else(|error| panic!("an order to {}: {error}", self.name));
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.inner.try_wait().expect("a child can be asked").is_none()
    }

    /// Sends a signal.
    ///
    /// # Panics
    /// If the child has been waited for already.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap_or_else(|error| panic!("signal to {}: {error}", self.name));
    }

    /// Kills it (SIGKILL) and waits for the end.
    pub fn kill(mut self) -> Exit {
        self.signal(Signal::KILL);
        self.end(Duration::from_secs(10)).unwrap_or_else(|late| panic!("killed process: {late}"))
    }

    /// Asks it to stop (SIGTERM) and waits.
    ///
    /// # Panics
    /// If it does not end within the deadline.
    pub fn terminate(mut self, deadline: Duration) -> Exit {
        self.signal(Signal::TERM);
        match self.end(deadline) {
            Ok(exit) => exit,
            Err(late) => panic!("{} after SIGTERM: {late}\n{}", self.name, self.said()),
        }
    }

    /// Waits for it to end by itself.
    ///
    /// # Panics
    /// If it does not end within the deadline.
    pub fn wait(mut self, deadline: Duration) -> Exit {
        match self.end(deadline) {
            Ok(exit) => exit,
            Err(late) => panic!("{}: {late}\n{}", self.name, self.said()),
        }
    }

    fn end(&mut self, deadline: Duration) -> Result<Exit, Late> {
        let status = await_until(|| self.inner.try_wait().expect("a child can be asked"), deadline)?;
        // A grandchild that kept the pipe must not hold the test up for ever.
        await_until(|| (self.stdout.lock().ended && self.stderr.lock().ended).then_some(()), deadline)?;
        Ok(Exit {
            status,
            stdout: self.stdout.lock().lines.clone(),
            stderr: self.stderr.lock().lines.clone(),
        })
    }

    /// Everything it said so far, for a failing test's message.
    #[must_use]
    pub fn said(&self) -> String {
        let (out, err) = (self.stdout.lock(), self.stderr.lock());
        format!("-- {} stdout\n{}\n-- stderr\n{}", self.name, out.lines.join("\n"), err.lines.join("\n"))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.inner.kill();
        let _ = self.inner.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn lines_are_found_and_signals_arrive() {
        let script = "echo ready 7; read -r never </dev/zero; exit 3";
        let mut child = Child::start("shell", Command::new("sh").args(["-c", script]));
        let number =
            child.await_line(|line| line.strip_prefix("ready ").and_then(|n| n.parse::<u32>().ok()), LONG);
        assert_eq!(number, 7);
        assert!(child.runs());
        let exit = child.terminate(LONG);
        assert!(!exit.status.success());
        assert_eq!(exit.stdout, ["ready 7"]);
    }

    #[test]
    fn an_end_by_itself_is_seen_with_its_code() {
        let exit = Child::start("shell", Command::new("sh").args(["-c", "echo no >&2; exit 3"])).wait(LONG);
        assert_eq!(exit.status.code(), Some(3));
        assert_eq!(exit.stderr, ["no"]);
    }

    #[test]
    #[should_panic(expected = "ended its output without the line")]
    fn a_child_that_ends_silently_fails_the_test_at_once() {
        Child::start("shell", Command::new("sh").args(["-c", "exit 0"])).await_line(|_| None::<()>, LONG);
    }
}
