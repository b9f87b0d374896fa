//! `rudder experience`

use crate::exit::{Failure, bad_input, failed, print_json, say};
use clap::{Subcommand, ValueEnum};
use rudder_advisor::experience::{Experience, ExperienceError, Store};
use rudder_advisor::train::distil::distil;
use rudder_advisor::train::{TrainError, train};
use rudder_policy::advice::cost::OpportunityCost;
use std::path::{Path, PathBuf};

#[derive(Subcommand)]
#[command(after_help = "Examples:
  rudder experience show experience.redb
  rudder experience export experience.redb --format jsonl > chats.jsonl
  rudder experience train experience.redb --out evaluator.json

The file is the one that `experience` in [advisor] of the topology names; the scheduler node must not run meanwhile.")]
pub enum ExperienceCommand {
    /// Print every judged directive: who advised it, what was expected and what came of it
    Show {
        file: PathBuf,
        #[arg(long)]
        json: bool,
    },
    /// Print training data for language models, one chat with its reward a line
    Export {
        file: PathBuf,
        #[arg(long, value_enum, default_value_t = Format::Jsonl)]
        format: Format,
    },
    /// Fit the evaluator and the distilled advisor, for `evaluator` and `distilled` in [advisor]
    Train {
        file: PathBuf,
        /// Where to write the evaluator
        #[arg(long)]
        out: PathBuf,
        /// Where to write the distilled advisor [default: distilled.json beside the evaluator]
        #[arg(long)]
        distilled: Option<PathBuf>,
    },
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum Format {
    Jsonl,
}

pub fn run(command: &ExperienceCommand) -> Result<(), Failure> {
    match command {
        ExperienceCommand::Show { file, json: true } => {
            print_json(&entries(file)?.into_iter().map(|(_, experience)| experience).collect::<Vec<_>>())
        }
        ExperienceCommand::Show { file, json: false } => show(&entries(file)?),
        ExperienceCommand::Export { file, format: Format::Jsonl } => {
            entries(file)?.iter().try_for_each(|(_, experience)| say(experience.chat()))
        }
        ExperienceCommand::Train { file, out, distilled } => {
            let all: Vec<_> = entries(file)?.into_iter().map(|(_, experience)| experience).collect();
            learn(&all, out)?;
            distil_to(&all, &distilled.clone().unwrap_or_else(|| out.with_file_name("distilled.json")))
        }
    }
}

fn entries(file: &Path) -> Result<Vec<(u64, Experience)>, Failure> {
    Store::open_existing(file).and_then(|store| store.entries()).map_err(|error| match error {
        ExperienceError::Open { .. } => bad_input(error),
        other => failed(other),
    })
}

fn show(entries: &[(u64, Experience)]) -> Result<(), Failure> {
    say("entry  minibatch  predicted  measured  verdict   refused     late MB  advisor")?;
    for (number, experience) in entries {
        let outcome = experience.outcome;
        let measured = outcome.measured.map_or("-".to_owned(), |change| format!("{change:+.3}"));
        let verdict = format!("{:?}", outcome.verdict).to_lowercase();
        let late = experience.cost.map_or("-".to_owned(), |cost| format!("{:.2}", megabytes(cost)));
        let refused = experience.refusals.len() + experience.dropped.len();
        say(format_args!(
            "{number:>5}  {:>9}  {:>+9.3}  {measured:>8}  {verdict:<8}  {refused:>7}  {late:>10}  {}",
            experience.state.minibatch, outcome.predicted, experience.backend
        ))?;
    }
    say(format_args!(
        "{} directives; changes are of the stall share, negative is better; late: fetched while a trainer waited, \
         beyond what as many minibatches fetched so before",
        entries.len()
    ))
}

fn megabytes(cost: OpportunityCost) -> f64 {
    cost.delayed_bytes() as f64 / 1e6
}

fn learn(all: &[Experience], out: &Path) -> Result<(), Failure> {
    let trained = train(all).map_err(refused)?;
    write(out, &trained.evaluator)?;
    say(format_args!("{}: learned from {} measured directives", out.display(), trained.measured))?;
    say("sign accuracy on the newest fifth  measured  learned  closed form  best constant answer")?;
    let all = ("all", trained.signs);
    trained.levers.into_iter().chain([all]).try_for_each(|(lever, signs)| {
        let percent = |share: f32| format!("{:.0} %", share * 100.0);
        let (learned, closed, constant) =
            (percent(signs.learned), percent(signs.closed_form), percent(signs.constant));
        say(format_args!("  {lever:<32} {:>8}  {learned:>7}  {closed:>11}  {constant:>20}", signs.measured))
    })
}

fn distil_to(all: &[Experience], out: &Path) -> Result<(), Failure> {
    let distilled = match distil(all) {
        Ok(distilled) => distilled,
        // The evaluator was written; a model of nothing would be of no use.
        Err(error @ TrainError::NothingToImitate) => {
            return say(format_args!("{}: not written: {error}", out.display()));
        }
        Err(error) => return Err(refused(error)),
    };
    write(out, &distilled.model)?;
    say(format_args!(
        "{}: learned from the best directives for {} states",
        out.display(),
        distilled.learned
    ))?;
    say(format_args!(
        "agreement with the best past directive on the newest {}: distilled {:.0} %, rules {:.0} %, best constant \
         answer ({}) {:.0} %",
        distilled.apart,
        distilled.agreement * 100.0,
        distilled.agreement_rules * 100.0,
        distilled.constant,
        distilled.agreement_constant * 100.0
    ))
}

fn refused(error: TrainError) -> Failure {
    match error {
        TrainError::TooFew { .. } => bad_input(error),
        other => failed(other),
    }
}

fn write(out: &Path, model: &impl serde::Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(model).map_err(failed)?;
    std::fs::write(out, text + "\n").map_err(|error| failed(format!("{}: {error}", out.display())))
}
