//! `[advisor]` to [`Advisor`].

use super::Compiler;
use crate::advisor::{Advisor, AdvisorBackend, AnswerForm, NAMES, SecretPlace};
use crate::error::{AdvisorError, Hint, SpecError, ValueError};
use crate::units::Nanos;

const FORMS: &[&str] = &["options", "actions"];

impl Compiler<'_> {
    pub(super) fn advisor(&mut self) -> Advisor {
        let Some(spec) = &self.spec.advisor else { return Advisor::default() };
        let at = |key: &str| format!("advisor.{key}");
        let mut advisor = Advisor { backend: AdvisorBackend::Auto, ..Advisor::default() };
        if let Some(name) = &spec.backend {
            match AdvisorBackend::named(name) {
                Some(backend) => advisor.backend = backend,
                None => self.choice(&at("backend"), "backend", name, NAMES),
            }
        }
        if let Some(name) = &spec.form {
            match FORMS.iter().position(|form| form == name) {
                Some(0) => advisor.form = AnswerForm::Options,
                Some(_) => advisor.form = AnswerForm::Actions,
                None => self.choice(&at("form"), "form", name, FORMS),
            }
        }
        advisor.url = spec.url.as_deref().and_then(|url| self.url(&at("url"), url));
        advisor.model.clone_from(&spec.model);
        let second = Nanos::from_secs(1);
        self.time("deadline", &spec.deadline, (second, Nanos::from_secs(600)), &mut advisor.deadline);
        let loaded = (Nanos(0), Nanos::from_secs(86_400));
        self.time("keep_alive", &spec.keep_alive, loaded, &mut advisor.keep_alive);
        self.whole("attempts", spec.attempts, (1, 10), &mut advisor.attempts);
        self.whole("answer_tokens_max", spec.answer_tokens_max, (16, 4096), &mut advisor.answer_tokens_max);
        self.whole("context_tokens", spec.context_tokens, (1024, 131_072), &mut advisor.context_tokens);
        self.whole("similarity_percent", spec.similarity_percent, (50, 100), &mut advisor.similarity_percent);
        advisor.replay = self.optional_path("replay", &spec.replay);
        advisor.experience = self.optional_path("experience", &spec.experience);
        advisor.evaluator = self.optional_path("evaluator", &spec.evaluator);
        advisor.authority = self.optional_path("authority", &spec.authority);
        advisor.distilled = self.optional_path("distilled", &spec.distilled);
        let key_file = self.optional_path("key_file", &spec.key_file).map(SecretPlace::File);
        let environment = spec.key_environment.clone().map(SecretPlace::Environment);
        if key_file.is_some() && environment.is_some() {
            self.error(&at("key_environment"), AdvisorError::TwoKeys);
        }
        advisor.key = key_file.or(environment);
        self.check_advisor(&advisor);
        advisor
    }

    /// What a back end cannot do without.
    fn check_advisor(&mut self, advisor: &Advisor) {
        let backend = advisor.backend.name();
        let needs: &[(&'static str, bool, &'static str)] = match advisor.backend {
            AdvisorBackend::Ollama => &[("model", advisor.model.is_none(), "model = \"qwen2.5:3b\"")],
            AdvisorBackend::OpenAi => &[
                ("url", advisor.url.is_none(), "url = \"http://127.0.0.1:8000/v1\""),
                ("model", advisor.model.is_none(), "model = \"default\""),
            ],
            AdvisorBackend::Distilled => {
                &[("distilled", advisor.distilled.is_none(), "distilled = \"distilled.json\"")]
            }
            AdvisorBackend::Replay => &[("replay", advisor.replay.is_none(), "replay = \"answers.jsonl\"")],
            _ => &[],
        };
        for &(key, missing, example) in needs {
            if missing && !self.source.has(&format!("advisor.{key}")) {
                self.error("advisor", AdvisorError::Needs { backend, key, example });
            }
        }
    }

    fn choice(&mut self, path: &str, key: &'static str, name: &str, known: &'static [&'static str]) {
        let hint = Hint::new(name, known);
        self.value_error(path, key, name, ValueError::Choice { hint });
    }

    fn url(&mut self, path: &str, url: &str) -> Option<String> {
        let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
        let plain = |host: &str| !host.is_empty() && host.chars().all(|c| c.is_ascii_graphic() && c != '@');
        if host.is_some_and(plain) {
            return Some(url.trim_end_matches('/').to_owned());
        }
        self.error(path, AdvisorError::Url);
        None
    }

    fn optional_path(&mut self, key: &'static str, text: &Option<String>) -> Option<std::path::PathBuf> {
        text.as_deref().and_then(|text| self.path(&format!("advisor.{key}"), key, text))
    }

    fn time(
        &mut self,
        key: &'static str,
        text: &Option<String>,
        (min, max): (Nanos, Nanos),
        into: &mut Nanos,
    ) {
        let Some(text) = text else { return };
        let path = format!("advisor.{key}");
        let Some(value) = self.parse::<Nanos>(&path, key, text) else { return };
        if value < min || value > max {
            let text = crate::spec::clip(text);
            let (min, max) = (min.to_string(), max.to_string());
            self.error(&path, crate::error::LimitError::Range { key, text, min, max });
            return;
        }
        *into = value;
    }

    fn whole(&mut self, key: &'static str, value: Option<u32>, (min, max): (u32, u32), into: &mut u32) {
        let Some(value) = value else { return };
        if value < min || value > max {
            let (value, min, max) = (i64::from(value), u64::from(min), u64::from(max));
            self.error(&format!("advisor.{key}"), SpecError::Range { key: key.to_owned(), value, min, max });
            return;
        }
        *into = value;
    }
}

#[cfg(test)]
mod tests {
    use crate::advisor::{Advisor, AdvisorBackend, AnswerForm, SecretPlace};
    use crate::units::Nanos;
    use std::path::{Path, PathBuf};

    fn compile(advisor: &str) -> Result<Advisor, String> {
        let text =
            format!("[[nodes]]\nname = \"n\"\nroles = [\"scheduler\"]\ncontrol = \"127.0.0.1:0\"\n{advisor}");
        let cluster = crate::compile(&text, Path::new("/t/topology.toml"));
        cluster.map(|cluster| cluster.advisor).map_err(|errors| errors.to_string())
    }

    #[test]
    fn without_a_section_the_rules_answer_and_nothing_is_dialled() {
        assert_eq!(compile("").unwrap(), Advisor::default());
        assert_eq!(Advisor::default().backend, AdvisorBackend::Rules);
        assert_eq!(compile("[advisor]\n").unwrap().backend, AdvisorBackend::Auto);
    }

    #[test]
    fn every_setting_is_read() {
        let advisor = compile(
            "[advisor]\nbackend = \"openai\"\nurl = \"http://127.0.0.1:8000/v1/\"\nmodel = \"m\"\nform = \"actions\"\n\
             deadline = \"5s\"\nattempts = 3\nanswer_tokens_max = 64\ncontext_tokens = 2048\nkeep_alive = \"1min\"\n\
             similarity_percent = 90\nkey_file = \"secret\"\nauthority = \"ca.pem\"\nexperience = \"e.redb\"\n\
             evaluator = \"e.json\"\ndistilled = \"d.json\"\n",
        );
        let expected = Advisor {
            backend: AdvisorBackend::OpenAi,
            url: Some("http://127.0.0.1:8000/v1".to_owned()),
            model: Some("m".to_owned()),
            form: AnswerForm::Actions,
            deadline: Nanos::from_secs(5),
            attempts: 3,
            answer_tokens_max: 64,
            context_tokens: 2048,
            keep_alive: Nanos::from_secs(60),
            similarity_percent: 90,
            key: Some(SecretPlace::File(PathBuf::from("/t/secret"))),
            authority: Some(PathBuf::from("/t/ca.pem")),
            replay: None,
            experience: Some(PathBuf::from("/t/e.redb")),
            evaluator: Some(PathBuf::from("/t/e.json")),
            distilled: Some(PathBuf::from("/t/d.json")),
        };
        assert_eq!(advisor.unwrap(), expected);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let cases = [
            ("backend = \"olama\"", "did you mean `ollama`?"),
            ("backend = \"openai\"\nmodel = \"m\"", "add url = "),
            ("backend = \"ollama\"", "add model = "),
            ("backend = \"replay\"", "add replay = "),
            ("backend = \"distilled\"", "add distilled = "),
            ("url = \"ftp://api.example.org\"", "https://"),
            ("url = \"https://\"", "https://"),
            ("url = \"http://user:secret@host\"", "http://"),
            ("deadline = \"1h\"", "deadline"),
            ("deadline = \"0.1s\"", "out of range"),
            ("attempts = 0", "from 1 to 10"),
            ("key_file = \"a\"\nkey_environment = \"B\"", "keep one"),
            ("colour = \"red\"", "unknown key `colour`"),
        ];
        for (text, expected) in cases {
            let error = compile(&format!("[advisor]\n{text}\n")).unwrap_err();
            assert!(error.contains(expected) && error.contains("topology.toml:"), "{text}: {error}");
            assert!(!error.contains("secret@"), "{error}");
        }
    }
}
