//! Plots as inline SVG, drawn without any library.

use std::fmt::Write;

const WIDTH: f64 = 640.0;
const LEFT: f64 = 120.0;
const RIGHT: f64 = 70.0;
const BAR: f64 = 22.0;
const GAP: f64 = 10.0;

/// A horizontal bar with its interval.
pub(crate) struct Bar {
    pub label: String,
    pub value: f64,
    pub low: f64,
    pub high: f64,
    /// As written beside the bar.
    pub text: String,
    pub colour: &'static str,
}

/// A line over equally spaced points.
pub(crate) struct Line {
    pub label: String,
    pub values: Vec<f64>,
    pub colour: &'static str,
}

/// Escapes text for HTML and SVG.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

pub(crate) fn bars(title: &str, bars: &[Bar]) -> String {
    let height = 40.0 + bars.len() as f64 * (BAR + GAP);
    let most = bars.iter().map(|bar| bar.high.max(bar.value)).fold(0.0, f64::max).max(1e-9);
    let scale = (WIDTH - LEFT - RIGHT) / most;
    let mut svg = open(title, height);
    for (at, bar) in bars.iter().enumerate() {
        let y = 34.0 + at as f64 * (BAR + GAP);
        let middle = y + BAR / 2.0;
        let (low, high) = (LEFT + bar.low * scale, LEFT + bar.high * scale);
        let _ = write!(
            svg,
            "<text x='{}' y='{}' text-anchor='end'>{}</text><rect x='{LEFT}' y='{y}' width='{:.1}' height='{BAR}' fill='{}'/>",
            LEFT - 8.0,
            middle + 4.0,
            escape(&bar.label),
            (bar.value * scale).max(0.0),
            bar.colour,
        );
        let _ = write!(
            svg,
            "<path d='M{low:.1} {middle}H{high:.1}M{low:.1} {}v10M{high:.1} {}v10' stroke='currentColor' fill='none'/><text x='{:.1}' y='{}'>{}</text>",
            middle - 5.0,
            middle - 5.0,
            high.max(LEFT + bar.value * scale) + 6.0,
            middle + 4.0,
            escape(&bar.text),
        );
    }
    svg.push_str("</svg>");
    svg
}

/// What stands below a plot.
enum Below<'a> {
    /// How many points there are, behind this label.
    Count(&'a str),
    /// A text for each point.
    Ticks(&'a [String]),
}

pub(crate) fn lines(title: &str, x_label: &str, y_unit: &str, lines: &[Line]) -> String {
    plot(title, &Below::Count(x_label), y_unit, lines)
}

/// As [`lines`], with a text below each point.
pub(crate) fn curves(title: &str, ticks: &[String], y_unit: &str, lines: &[Line]) -> String {
    plot(title, &Below::Ticks(ticks), y_unit, lines)
}

fn plot(title: &str, below: &Below<'_>, y_unit: &str, lines: &[Line]) -> String {
    const TOP: f64 = 40.0;
    const PLOT: f64 = 240.0;
    let legend = 18.0 * lines.len() as f64;
    let mut svg = open(title, TOP + PLOT + 40.0 + legend);
    let most = lines.iter().flat_map(|line| &line.values).copied().fold(0.0, f64::max).max(1e-9);
    let longest = lines.iter().map(|line| line.values.len()).max().unwrap_or(0).max(2);
    let (left, width) = (60.0, WIDTH - 80.0);
    let x = |at: usize| left + at as f64 / (longest - 1) as f64 * width;
    let y = |value: f64| TOP + PLOT - value / most * PLOT;
    for tick in 0..=4 {
        let value = most * f64::from(tick) / 4.0;
        let _ = write!(
            svg,
            "<path d='M{left} {0:.1}h{width}' stroke='#8886' fill='none'/><text x='{1}' y='{2:.1}' text-anchor='end'>{value:.2}{y_unit}</text>",
            y(value),
            left - 6.0,
            y(value) + 4.0,
        );
    }
    let mut write_below = |x: f64, anchor: &str, text: &str| {
        let _ = write!(
            svg,
            "<text x='{x:.1}' y='{}' text-anchor='{anchor}'>{}</text>",
            TOP + PLOT + 18.0,
            escape(text)
        );
    };
    match below {
        Below::Count(label) => write_below(left + width, "end", &format!("{label} {longest}")),
        Below::Ticks(ticks) => {
            for (at, tick) in ticks.iter().enumerate() {
                let anchor = if at + 1 == longest { "end" } else { "middle" };
                write_below(x(at), anchor, tick);
            }
        }
    }
    for (at, line) in lines.iter().enumerate() {
        let points: Vec<String> = line
            .values
            .iter()
            .enumerate()
            .map(|(at, &value)| format!("{:.1},{:.1}", x(at), y(value)))
            .collect();
        let legend_y = TOP + PLOT + 36.0 + 18.0 * at as f64;
        let _ = write!(
            svg,
            "<polyline points='{}' fill='none' stroke='{2}' stroke-width='2'/><path d='M{left} {legend_y}h24' stroke='{2}' stroke-width='3'/><text x='{3}' y='{4}'>{1}</text>",
            points.join(" "),
            escape(&line.label),
            line.colour,
            left + 30.0,
            legend_y + 4.0,
        );
    }
    svg.push_str("</svg>");
    svg
}

fn open(title: &str, height: f64) -> String {
    format!(
        "<svg viewBox='0 0 {WIDTH} {height}' role='img' aria-label='{0}'><text x='0' y='18' class='title'>{0}</text>",
        escape(title).replace('\'', "&#39;")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_stay_finite_whatever_the_values() {
        let bar = |value: f64| Bar {
            label: "<x>".into(),
            value,
            low: 0.0,
            high: value,
            text: "t".into(),
            colour: "#000",
        };
        for plot in [
            bars("empty", &[]),
            bars("zero", &[bar(0.0)]),
            lines("none", "x", "s", &[]),
            curves("none", &[], "s", &[]),
            curves(
                "ticks",
                &["<x>".into()],
                "s",
                &[Line { label: "a".into(), values: vec![1.0], colour: "#000" }],
            ),
            lines("one", "x", "s", &[Line { label: "a".into(), values: vec![0.0], colour: "#000" }]),
        ] {
            assert!(plot.starts_with("<svg") && plot.ends_with("</svg>"));
            assert!(!plot.contains("NaN") && !plot.contains("inf"), "{plot}");
            assert!(!plot.contains("<x>"));
        }
    }
}
