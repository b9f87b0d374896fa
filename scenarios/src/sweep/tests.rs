use super::table::{Format, render, render_arms, verdict};
use super::*;

fn cell(graph: &str, rudder: f64, lru: f64, vertex_share: f64) -> Cell {
    let arm = |arm, minibatches_per_s| Outcome {
        arm,
        minibatches_per_s,
        wait_share: 0.1,
        bytes_moved: 1000,
        hit_rate: 0.5,
        bypasses: 0,
    };
    Cell {
        scenario: "starved".into(),
        graph: graph.into(),
        vertices: 2_000_000,
        row_bytes: 512,
        rows_per_block: 8,
        seed: 1,
        minibatches: 10,
        vertex_share,
        cache_share: 0.05,
        arms: vec![arm(Arm::None, 1.0), arm(Arm::Lru, lru), arm(Arm::Rudder, rudder)],
        bound: None,
        oracle: None,
    }
}

#[test]
fn one_percent_is_allowed_and_more_is_not() {
    for (rudder, worse) in [(10.0, false), (9.91, false), (9.89, true), (12.0, false)] {
        let cell = cell("a", rudder, 10.0, 0.001);
        assert_eq!(cell.best_other().map(|arm| arm.arm), Some(Arm::Lru));
        assert_eq!(cell.is_worse(), worse, "{rudder}");
    }
    let mut alone = cell("a", 1.0, 2.0, 0.0);
    alone.arms.retain(|arm| arm.arm == Arm::Rudder);
    assert_eq!((alone.ratio(), alone.is_worse()), (None, false));
}

#[test]
fn the_last_line_counts_cells_and_names_the_worst() {
    let cells = vec![cell("good", 11.0, 10.0, 0.001), cell("bad", 8.0, 10.0, 0.2)];
    let sweep = Sweep { cells, failures: vec!["a simulation: stuck".into()], stopped: false };
    let lines = verdict(&sweep);
    let last = lines.last().unwrap();
    assert!(
        last.contains("2 cells: in 1 ") && last.contains("0.800x lru") && last.contains("on bad"),
        "{last}"
    );
    assert!(lines.iter().any(|line| line.contains("starved on bad (20.0 %)") && !line.contains("good")));
    assert!(lines.iter().any(|line| line == "failed: a simulation: stuck"));
    let text = render(&sweep, Format::Terminal);
    assert_eq!(text.matches("WORSE").count(), 1, "{text}");
    let table = render(&sweep, Format::Markdown);
    assert!(table.starts_with("| scenario | graph |"), "{table}");
    let arms = render_arms(&sweep, Format::Terminal);
    assert_eq!(arms.lines().count(), 2 + 6, "{arms}");
    assert!(verdict(&Sweep::default()).last().unwrap().contains("0 cells"));
}
