//! The progress bar of simulations.

use indicatif::{ProgressBar, ProgressStyle};

/// Counts steps of trainers.
pub(crate) fn steps_bar(prefix: String, steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps);
    if let Ok(style) = ProgressStyle::with_template("{prefix} {wide_bar} {percent:>3}% {elapsed}/{duration}")
    {
        bar.set_style(style);
    }
    bar.set_prefix(prefix);
    bar
}
