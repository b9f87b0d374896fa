//! From an advisor's bytes to actions, or to typed reasons why not. The bytes are from outside: prose around JSON, code
//! fences, wrong types, unknown names, repetitions, huge or cut output, invalid UTF-8. Nothing of the text is ever
//! carried on but a clipped reason for people; refusals name only our own words, so they may enter the next prompt.

use super::directive::Action;
use super::lever::{ACTIONS_MAX, Field, Kind, LEVERS, Lever, TTL, TTL_S_DEFAULT, Value, Vocabulary};
use super::schema::{REASON_CHARS_MAX, option_label};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value as Json;

/// Bytes of an answer that are looked at.
pub const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Places at which JSON is tried to be read.
const STARTS_MAX: usize = 200;

/// Refusals kept of one answer.
const REFUSALS_MAX: usize = 16;

/// What an advisor was asked, so that its answer can be understood.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub vocabulary: &'a Vocabulary,
    /// In the order in which they were shown.
    pub options: &'a [Action],
}

/// Why something in an answer was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum RefusalReason {
    #[error("the answer held no JSON object of the required form")]
    NoAnswer,
    #[error("the list of choices or actions was no array")]
    NotAnArray,
    #[error("an item was of the wrong type")]
    NotAnItem,
    #[error("an option was named that was not shown")]
    UnknownOption,
    #[error("an action named no lever of the table")]
    UnknownLever,
    #[error("a field was missing")]
    Missing,
    #[error("a field was of the wrong type")]
    WrongType,
    #[error("a field named what was not offered")]
    UnknownId,
    #[error("a number was outside its range")]
    OutOfRange,
    #[error("the same action came twice")]
    Duplicate,
    #[error("two actions set the same thing")]
    Contradiction,
    #[error("there were more actions than allowed")]
    TooMany,
}

impl RefusalReason {
    /// Something was said twice, rather than wrongly.
    #[must_use]
    pub fn is_repetition(self) -> bool {
        matches!(self, RefusalReason::Duplicate | RefusalReason::Contradiction)
    }
}

/// One refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// The lever's name in the table, where one was recognised.
    pub lever: Option<&'static str>,
    /// The field's name in the table, where it is about one.
    pub field: Option<&'static str>,
    #[serde(flatten)]
    pub reason: RefusalReason,
}

/// A refusal as it is kept. A name that the table does not have (any more) is dropped.
#[derive(Deserialize)]
struct Kept {
    lever: Option<String>,
    field: Option<String>,
    #[serde(flatten)]
    reason: RefusalReason,
}

// By hand: derived, it would only take text that lives for ever.
impl<'de> Deserialize<'de> for Refused {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Kept::deserialize(from).map(Refused::from)
    }
}

impl From<Kept> for Refused {
    fn from(kept: Kept) -> Self {
        let known = |name: Option<String>, mut table: Box<dyn Iterator<Item = &'static str>>| {
            let name = name?;
            table.find(|&known| known == name)
        };
        let fields = LEVERS.iter().flat_map(|lever| lever.fields).chain([&TTL]);
        Refused {
            lever: known(kept.lever, Box::new(LEVERS.iter().map(|lever| lever.name))),
            field: known(kept.field, Box::new(fields.map(|field| field.name))),
            reason: kept.reason,
        }
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.lever, self.field) {
            (Some(lever), Some(field)) => write!(f, "{lever}.{field}: {}", self.reason),
            (Some(lever), None) => write!(f, "{lever}: {}", self.reason),
            _ => write!(f, "{}", self.reason),
        }
    }
}

/// An answer, understood. Without actions and without refusals it said to do nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    pub actions: Vec<Action>,
    pub refusals: Vec<Refused>,
    /// For people only.
    pub reason: String,
}

/// Understands an answer. Never fails: what cannot be taken is a refusal.
#[must_use]
pub fn parse(bytes: &[u8], asked: Asked<'_>) -> Answer {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(ANSWER_BYTES_MAX)]);
    let mut answer = Answer::default();
    match find(&text) {
        Found::Nothing => answer.refuse(None, None, RefusalReason::NoAnswer),
        Found::Whole(object) => {
            answer.reason = object.get("reason").and_then(Json::as_str).map(clean).unwrap_or_default();
            if let Some(choices) = object.get("choose") {
                answer.each(choices, |answer, item| answer.take_option(item, asked.options));
            }
            if let Some(actions) = object.get("actions") {
                answer.each(actions, |answer, item| answer.take_action(item, asked.vocabulary));
            }
        }
        Found::Pieces(actions) => {
            actions.iter().for_each(|item| answer.take_action(item, asked.vocabulary));
        }
    }
    answer
}

/// JSON found in a text.
enum Found {
    Nothing,
    /// An object with choices or actions.
    Whole(serde_json::Map<String, Json>),
    /// Actions of an answer that was cut.
    Pieces(Vec<Json>),
}

fn find(text: &str) -> Found {
    let mut pieces = vec![];
    let mut from = 0;
    for (start, _) in text.match_indices('{').take(STARTS_MAX) {
        if start < from {
            continue;
        }
        let mut values = serde_json::Deserializer::from_str(&text[start..]).into_iter::<Json>();
        let Some(Ok(Json::Object(object))) = values.next() else { continue };
        if object.contains_key("choose") || object.contains_key("actions") {
            return Found::Whole(object);
        }
        // What lies within an object that was read has been seen.
        from = start + values.byte_offset();
        if object.contains_key("lever") && pieces.len() <= ACTIONS_MAX {
            pieces.push(Json::Object(object));
        }
    }
    if pieces.is_empty() { Found::Nothing } else { Found::Pieces(pieces) }
}

/// One line of printable characters.
fn clean(text: &str) -> String {
    let printable = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    printable.take(REASON_CHARS_MAX).collect()
}

impl Answer {
    fn refuse(&mut self, lever: Option<&'static str>, field: Option<&'static str>, reason: RefusalReason) {
        if self.refusals.len() < REFUSALS_MAX {
            self.refusals.push(Refused { lever, field, reason });
        }
    }

    fn each(&mut self, list: &Json, take: impl Fn(&mut Answer, &Json)) {
        match list.as_array() {
            Some(items) => items.iter().for_each(|item| take(self, item)),
            None => self.refuse(None, None, RefusalReason::NotAnArray),
        }
    }

    fn take_option(&mut self, item: &Json, options: &[Action]) {
        let Some(name) = item.as_str() else {
            return self.refuse(None, None, RefusalReason::NotAnItem);
        };
        match (0..options.len()).find(|&index| option_label(index) == name.trim()) {
            Some(index) => self.add(options[index], None),
            None => self.refuse(None, None, RefusalReason::UnknownOption),
        }
    }

    fn take_action(&mut self, item: &Json, vocabulary: &Vocabulary) {
        let Some(object) = item.as_object() else {
            return self.refuse(None, None, RefusalReason::NotAnItem);
        };
        let name = object.get("lever").and_then(Json::as_str);
        let Some(lever) = LEVERS.iter().find(|lever| Some(lever.name) == name) else {
            return self.refuse(None, None, RefusalReason::UnknownLever);
        };
        match read_action(lever, object, vocabulary) {
            Ok(action) => self.add(action, Some(lever.name)),
            Err((field, reason)) => self.refuse(Some(lever.name), Some(field), reason),
        }
    }

    fn add(&mut self, action: Action, lever: Option<&'static str>) {
        if self.actions.contains(&action) {
            self.refuse(lever, None, RefusalReason::Duplicate);
        } else if self.actions.iter().any(|taken| taken.is_about_the_same(&action)) {
            self.refuse(lever, None, RefusalReason::Contradiction);
        } else if self.actions.len() == ACTIONS_MAX {
            self.refuse(lever, None, RefusalReason::TooMany);
        } else {
            self.actions.push(action);
        }
    }
}

type FieldRefusal = (&'static str, RefusalReason);

fn read_action(
    lever: &Lever,
    object: &serde_json::Map<String, Json>,
    vocabulary: &Vocabulary,
) -> Result<Action, FieldRefusal> {
    let mut values = vec![];
    for field in lever.fields {
        let given = object.get(field.name).ok_or((field.name, RefusalReason::Missing))?;
        values.push(read_field(field, given, vocabulary).map_err(|reason| (field.name, reason))?);
    }
    let ttl_s = match object.get(TTL.name) {
        None | Some(Json::Null) => TTL_S_DEFAULT,
        Some(given) => match read_field(&TTL, given, vocabulary) {
            Ok(Value::Integer(ttl_s)) => ttl_s,
            Ok(_) => return Err((TTL.name, RefusalReason::WrongType)),
            Err(reason) => return Err((TTL.name, reason)),
        },
    };
    // The fields were read by the lever's own row, so they fit it, unless two of them are the same node.
    let last = lever.fields[lever.fields.len() - 1].name;
    Action::new(lever.id, &values, ttl_s).ok_or((last, RefusalReason::Contradiction))
}

fn read_field(field: &Field, given: &Json, vocabulary: &Vocabulary) -> Result<Value, RefusalReason> {
    if let Kind::Integer { min, max } = field.kind {
        let number = given.as_f64().ok_or(RefusalReason::WrongType)?;
        if number.fract() != 0.0 {
            return Err(RefusalReason::WrongType);
        }
        let inside = (f64::from(min)..=f64::from(max)).contains(&number);
        return if inside { Ok(Value::Integer(number as u32)) } else { Err(RefusalReason::OutOfRange) };
    }
    let name = given.as_str().ok_or(RefusalReason::WrongType)?.trim();
    if let Kind::Choice(choices) = field.kind {
        let index = choices.iter().position(|&choice| choice == name);
        return index.map(Value::Choice).ok_or(RefusalReason::UnknownId);
    }
    let entries = vocabulary.entries(field.kind);
    entries.iter().find(|(known, _)| known == name).map(|&(_, value)| value).ok_or(RefusalReason::UnknownId)
}

#[cfg(test)]
pub(crate) mod tests;
