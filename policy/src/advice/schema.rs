//! The JSON schema of an answer, derived from the lever table and the consult's vocabulary. Every string has a
//! maximum length or an enumeration, every array a maximum: without them constrained decoding may never end.

use super::lever::{ACTIONS_MAX, Field, Kind, LEVERS, Lever, TTL, Vocabulary};
use serde_json::{Value, json};

/// Characters of the reason that an answer may give.
pub const REASON_CHARS_MAX: usize = 120;

/// How the question is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The advisor chooses among options that code made. For small models.
    Options,
    /// The advisor writes actions.
    Actions,
}

/// A name of an option: its letter.
#[must_use]
pub fn option_label(index: usize) -> String {
    char::from(b'A' + (index % 26) as u8).to_string()
}

/// The schema of an answer that chooses among so many options.
#[must_use]
pub fn options_schema(options: usize) -> Value {
    let labels: Vec<_> = (0..options).map(option_label).collect();
    let chosen = json!({
        "type": "array",
        "items": { "type": "string", "enum": labels },
        "maxItems": options.min(ACTIONS_MAX),
    });
    answer("choose", chosen)
}

/// The schema of an answer that writes actions.
#[must_use]
pub fn actions_schema(vocabulary: &Vocabulary) -> Value {
    let offered = LEVERS.iter().filter(|lever| vocabulary.offers(lever));
    let levers: Vec<_> = offered.map(|lever| lever_schema(lever, vocabulary)).collect();
    let actions = json!({ "type": "array", "items": { "anyOf": levers }, "maxItems": ACTIONS_MAX });
    answer("actions", actions)
}

fn answer(key: &str, value: Value) -> Value {
    json!({
        "type": "object",
        "properties": {
            key: value,
            "reason": { "type": "string", "maxLength": REASON_CHARS_MAX },
        },
        "required": [key, "reason"],
        "additionalProperties": false,
    })
}

fn lever_schema(lever: &Lever, vocabulary: &Vocabulary) -> Value {
    let mut properties = serde_json::Map::new();
    properties.insert("lever".to_owned(), json!({ "type": "string", "enum": [lever.name] }));
    let mut required = vec!["lever"];
    for field in lever.fields.iter().chain([&TTL]) {
        properties.insert(field.name.to_owned(), field_schema(field, vocabulary));
        required.push(field.name);
    }
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn field_schema(field: &Field, vocabulary: &Vocabulary) -> Value {
    match field.kind {
        Kind::Integer { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::Choice(choices) => json!({ "type": "string", "enum": choices }),
        kind => {
            let names: Vec<_> = vocabulary.entries(kind).iter().map(|(name, _)| name).collect();
            json!({ "type": "string", "enum": names })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::parse::tests::{parse_all, vocabulary};
    use proptest::prelude::*;

    /// Every string and array of a schema is bounded.
    fn unbounded(schema: &Value, path: &str, found: &mut Vec<String>) {
        match schema["type"].as_str() {
            Some("string") if schema.get("enum").is_none() && schema.get("maxLength").is_none() => {
                found.push(path.to_owned());
            }
            Some("array") if schema.get("maxItems").is_none() => found.push(path.to_owned()),
            _ => {}
        }
        let below = schema["properties"].as_object().into_iter().flatten();
        below.for_each(|(key, value)| unbounded(value, &format!("{path}.{key}"), found));
        unbounded_items(schema, path, found);
    }

    fn unbounded_items(schema: &Value, path: &str, found: &mut Vec<String>) {
        if let Some(items) = schema.get("items") {
            unbounded(items, &format!("{path}[]"), found);
        }
        for one in schema["anyOf"].as_array().into_iter().flatten() {
            unbounded(one, &format!("{path}|"), found);
        }
    }

    #[test]
    fn every_string_and_array_is_bounded() {
        for schema in [options_schema(6), actions_schema(&vocabulary())] {
            let mut found = vec![];
            unbounded(&schema, "", &mut found);
            assert!(found.is_empty(), "{found:?}");
        }
        let mut found = vec![];
        unbounded(&json!({ "type": "array", "items": { "type": "string" } }), "", &mut found);
        assert_eq!(found.len(), 2, "the check itself notices nothing");
    }

    /// An instance of a schema of the kinds used here.
    fn instance(schema: &Value, key: rudder_graph::random::Key) -> Value {
        let pick = |list: &[Value]| list[key.below(1, list.len() as u64) as usize].clone();
        if let Some(choices) = schema["anyOf"].as_array() {
            return instance(&pick(choices), key.with(1));
        }
        if let Some(choices) = schema["enum"].as_array() {
            return pick(choices);
        }
        match schema["type"].as_str().unwrap() {
            "object" => {
                let fields = schema["properties"].as_object().unwrap().iter().zip(2..);
                fields
                    .map(|((name, s), at)| (name.clone(), instance(s, key.with(at))))
                    .collect::<serde_json::Map<_, _>>()
                    .into()
            }
            "array" => {
                let count = key.below(0, schema["maxItems"].as_u64().unwrap() + 1);
                (0..count).map(|at| instance(&schema["items"], key.with(at))).collect()
            }
            "integer" => {
                let (min, max) = (schema["minimum"].as_u64().unwrap(), schema["maximum"].as_u64().unwrap());
                (min + key.below(0, max - min + 1)).into()
            }
            _ => "x".repeat(schema["maxLength"].as_u64().unwrap() as usize).into(),
        }
    }

    proptest! {
        /// What the schema allows, the parser takes: all but what names the same thing twice.
        #[test]
        fn schema_and_parser_agree(seed: u64) {
            let key = rudder_graph::random::Key::new(seed);
            let given = instance(&actions_schema(&vocabulary()), key);
            let answer = parse_all(given.to_string().as_bytes());
            let wanted = given["actions"].as_array().unwrap().len();
            prop_assert_eq!(answer.actions.len() + answer.refusals.len(), wanted);
            for refused in &answer.refusals {
                prop_assert!(refused.reason.is_repetition(), "{}: {:?}", given, refused);
            }
            let given = instance(&options_schema(3), key);
            let answer = parse_all(given.to_string().as_bytes());
            prop_assert!(answer.refusals.iter().all(|refused| refused.reason.is_repetition()));
        }
    }
}
