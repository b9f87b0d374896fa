//! The command line of a trainer: the scenario's, or the reference trainer's.

use crate::compile::{Scenario, Verify};
use std::net::IpAddr;
use std::path::Path;

/// What a trainer of this run needs to know.
pub(super) struct TrainerPlace<'a> {
    pub rank: u32,
    /// `None`: the bound, without data.
    pub socket: Option<&'a Path>,
    pub dataset: &'a Path,
    /// Where its end of the ring binds.
    pub address: IpAddr,
}

/// The words of the command. Placeholders of a scenario's own command are `{socket}`, `{source}`, `{dataset}`,
/// `{rank}`, `{world}`, `{seeds}`, `{fanout}`, `{window}`, `{minibatches}`, `{seed}`, `{compute_ms}`.
///
/// `{source}` is the socket, or `-` for a run that takes the rows from the dataset's own files: a command that names it
/// measures the bound itself, with its own compute. For any other the reference trainer does, by sleeping.
pub(super) fn trainer_command(scenario: &Scenario, rudder: &Path, place: &TrainerPlace<'_>) -> Vec<String> {
    match (&scenario.trainer.command[..], place.socket) {
        (words, None) if words.iter().any(|word| word.contains(SOURCE)) => {
            words.iter().map(|word| fill(word, scenario, place, Path::new("-"))).collect()
        }
        ([], _) | (_, None) => reference(scenario, rudder, place),
        (words, Some(socket)) => words.iter().map(|word| fill(word, scenario, place, socket)).collect(),
    }
}

const SOURCE: &str = "{source}";

fn fanout(scenario: &Scenario) -> String {
    scenario.trainer.fanout.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

fn compute_ms(scenario: &Scenario) -> f64 {
    scenario.trainer.compute.0 as f64 / 1e6
}

fn fill(word: &str, scenario: &Scenario, place: &TrainerPlace<'_>, socket: &Path) -> String {
    let trainer = &scenario.trainer;
    [
        ("{socket}", socket.to_string_lossy().into_owned()),
        (SOURCE, socket.to_string_lossy().into_owned()),
        ("{dataset}", place.dataset.to_string_lossy().into_owned()),
        ("{rank}", place.rank.to_string()),
        ("{world}", scenario.trainers().to_string()),
        ("{seeds}", trainer.seeds.to_string()),
        ("{fanout}", fanout(scenario)),
        ("{window}", trainer.window.to_string()),
        ("{minibatches}", trainer.minibatches.to_string()),
        ("{seed}", scenario.seed.to_string()),
        ("{compute_ms}", compute_ms(scenario).to_string()),
    ]
    .into_iter()
    .fold(word.to_owned(), |word, (placeholder, value)| word.replace(placeholder, &value))
}

fn reference(scenario: &Scenario, rudder: &Path, place: &TrainerPlace<'_>) -> Vec<String> {
    let trainer = &scenario.trainer;
    let mut words =
        vec![rudder.to_string_lossy().into_owned(), "trainer".to_owned(), "--json-events".to_owned()];
    let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    option("dataset", place.dataset.to_string_lossy().into_owned());
    option("rank", place.rank.to_string());
    option("world", scenario.trainers().to_string());
    option("seeds", trainer.seeds.to_string());
    option("fanout", fanout(scenario));
    option("window", trainer.window.to_string());
    option("minibatches", trainer.minibatches.to_string());
    option("compute-ms", compute_ms(scenario).to_string());
    option("seed", scenario.seed.to_string());
    option("time-out", trainer.time_limit.spec_text());
    if trainer.allreduce.0 > 0 {
        option("ring", "-".to_owned());
        option("ring-bind", format!("{}:0", place.address));
        option("allreduce-bytes", trainer.allreduce.0.to_string());
    }
    match place.socket {
        Some(socket) => option("socket", socket.to_string_lossy().into_owned()),
        None => words.push("--bound".to_owned()),
    }
    if trainer.replay {
        words.push("--declare-sampler".to_owned());
    }
    if trainer.verify == Verify::Every && place.socket.is_some() {
        words.push("--verify".to_owned());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::compile;

    fn scenario(extra: &str) -> Scenario {
        let text = format!(
            "[dataset]\nimport = \"x\"\n[cluster]\ncompute_nodes = 2\nstorage_nodes = 2\nbandwidth = \"50Mbit/s\"\n[trainer]\ncompute = \"1.5ms\"\nminibatches = 2\n{extra}\n"
        );
        compile(&text, Path::new("x.toml")).unwrap()
    }

    fn place(socket: Option<&Path>) -> TrainerPlace<'_> {
        TrainerPlace { rank: 1, socket, dataset: Path::new("data"), address: "10.0.0.1".parse().unwrap() }
    }

    #[test]
    fn the_reference_trainer_is_told_everything() {
        let scenario = scenario("allreduce = \"4KiB\"");
        let words = trainer_command(&scenario, Path::new("rudder"), &place(Some(Path::new("s")))).join(" ");
        for option in ["--rank 1", "--world 2", "--fanout 10,5", "--compute-ms 1.5", "--ring -", "--verify"] {
            assert!(words.contains(option), "{option} in {words}");
        }
        let bound = trainer_command(&scenario, Path::new("rudder"), &place(None)).join(" ");
        assert!(bound.contains("--bound") && !bound.contains("--socket") && !bound.contains("--verify"));
    }

    #[test]
    fn a_scenarios_own_command_has_its_placeholders_filled() {
        let scenario = scenario("command = [\"python3\", \"t.py\", \"{socket}:{rank}/{world}\"]");
        let words = trainer_command(&scenario, Path::new("rudder"), &place(Some(Path::new("s"))));
        assert_eq!(words, ["python3", "t.py", "s:1/2"]);
        // The bound is measured by the reference trainer, unless the command can.
        assert!(
            trainer_command(&scenario, Path::new("rudder"), &place(None)).contains(&"--bound".to_owned())
        );
        let able = self::scenario("command = [\"t\", \"{source}\"]");
        assert_eq!(trainer_command(&able, Path::new("rudder"), &place(None)), ["t", "-"]);
        assert_eq!(trainer_command(&able, Path::new("rudder"), &place(Some(Path::new("s")))), ["t", "s"]);
    }
}
