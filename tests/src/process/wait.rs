//! The only place in the tests that looks at the clock.

use std::time::{Duration, Instant};

/// The condition did not become true in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late {
    pub after: Duration,
}

impl std::fmt::Display for Late {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "not so within {} s", self.after.as_secs_f64())
    }
}

impl std::error::Error for Late {}

/// Asks `condition` until it answers with a value, at most for `deadline`. For real processes, which offer nothing
/// better to wait on; a deadline is a limit on hanging, never a measure of speed.
pub fn await_until<T>(mut condition: impl FnMut() -> Option<T>, deadline: Duration) -> Result<T, Late> {
    let start = Instant::now();
    loop {
        if let Some(value) = condition() {
            return Ok(value);
        }
        if start.elapsed() >= deadline {
            return Err(Late { after: deadline });
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "the one wait by the clock: between two looks at another process"
        )]
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_the_value_or_says_it_is_late() {
        let mut asked = 0;
        let third = || {
            asked += 1;
            (asked == 3).then_some(asked)
        };
        assert_eq!(await_until(third, Duration::from_secs(60)), Ok(3));
        let never = || None::<()>;
        assert_eq!(await_until(never, Duration::ZERO), Err(Late { after: Duration::ZERO }));
    }
}
