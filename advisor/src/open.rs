//! Which back end a topology means.

use crate::backend::{Backend, BackendError};
use crate::chooser::{ChooserBackend, DistilledBackend};
use crate::ollama::OllamaBackend;
use crate::openai::OpenAiBackend;
use crate::replay::Replay;
use crate::train::read_distilled;
use rudder_policy::advice::choose::Chooser;
use rudder_topology::{Advisor, AdvisorBackend};
use std::time::Duration;

/// An Ollama that is there says so within this.
const FOUND_WITHIN: Duration = Duration::from_secs(2);

/// The back end, and what `auto` found.
pub struct Opened {
    pub backend: Box<dyn Backend>,
    /// For a log line, where there was something to decide.
    pub why: Option<String>,
}

/// Opens what the topology names. Only `auto` dials: whether a named server answers shows at the first consult, and a
/// consult never fails.
pub async fn open(advisor: &Advisor) -> Result<Opened, BackendError> {
    let chooser = |chooser| -> Box<dyn Backend> { Box::new(ChooserBackend(chooser)) };
    let model = advisor.model.as_deref().unwrap_or_default();
    let backend: Box<dyn Backend> = match advisor.backend {
        AdvisorBackend::Auto => return Ok(auto(advisor).await),
        AdvisorBackend::Ollama => Box::new(OllamaBackend::new(advisor, model)?),
        AdvisorBackend::OpenAi => {
            Box::new(OpenAiBackend::new(advisor, advisor.url.as_deref().unwrap_or_default(), model)?)
        }
        AdvisorBackend::Replay => {
            Box::new(Replay::open(advisor.replay.as_deref().unwrap_or(std::path::Path::new("")))?)
        }
        AdvisorBackend::Distilled => {
            let path = advisor.distilled.as_deref().unwrap_or(std::path::Path::new(""));
            let model = read_distilled(path).map_err(|error| BackendError::File {
                what: "the model that `distilled` names",
                reason: error.to_string(),
            })?;
            Box::new(DistilledBackend(model))
        }
        AdvisorBackend::Rules => chooser(Chooser::Rules),
        AdvisorBackend::Never => chooser(Chooser::Never),
        AdvisorBackend::Always => chooser(Chooser::Always),
        AdvisorBackend::Random => chooser(Chooser::Random),
        AdvisorBackend::First => chooser(Chooser::First),
    };
    Ok(Opened { backend, why: None })
}

/// The rules, and why.
#[must_use]
pub fn rules(why: String) -> Opened {
    Opened { backend: Box::new(ChooserBackend(Chooser::Rules)), why: Some(why) }
}

/// Ollama with the model that is named, or its first; else the rules.
async fn auto(advisor: &Advisor) -> Opened {
    let found = async {
        let probe = OllamaBackend::new(advisor, "")?;
        probe.models().await
    };
    let models = match tokio::time::timeout(FOUND_WITHIN, found).await {
        Ok(Ok(models)) => models,
        Ok(Err(error)) => return rules(format!("no Ollama ({error}): the rules advise")),
        Err(_) => return rules(format!("no Ollama answered within {FOUND_WITHIN:?}: the rules advise")),
    };
    let wanted = |model: &&String| advisor.model.as_ref().is_none_or(|wanted| *model == wanted);
    let Some(model) = models.iter().find(wanted) else {
        return rules(match &advisor.model {
            Some(model) => format!("the Ollama that answers has no model `{model}`: the rules advise"),
            None => "the Ollama that answers has no model: the rules advise".to_owned(),
        });
    };
    match OllamaBackend::new(advisor, model) {
        Ok(backend) => {
            Opened { why: Some(format!("{} advises", backend.name())), backend: Box::new(backend) }
        }
        Err(error) => rules(format!("{error}: the rules advise")),
    }
}
