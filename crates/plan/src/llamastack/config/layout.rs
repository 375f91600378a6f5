//! Two layouts of the file: servers before 0.3 keep resources and stores at the top, later ones in sections.
//! Comes in: a base; goes out: which of the two it has, and where its lists of resources are.

use serde_json::{Map, Value};

use super::draft::{self, Draft};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// `metadata_store`, `inference_store` and `models` at the top.
    Top,
    /// `storage` and `registered_resources`.
    Sections,
}

const SECTION: &str = "registered_resources";

impl Layout {
    /// By what is there; where that says nothing, by the server's version.
    pub fn of(draft: &Draft<'_>) -> Self {
        let has = |key: &str| draft.config.contains_key(key);
        let old = ["metadata_store", "inference_store", "models", "shields", "tool_groups"];
        let sections = has("storage") || has(SECTION);
        let top = draft.base.is_some()
            && !sections
            && if draft.server.known() { draft.server.before(0, 3) } else { old.into_iter().any(has) };
        if top { Self::Top } else { Self::Sections }
    }

    /// Changes one list of resources; an empty list that was not there is not written.
    pub fn change(self, config: &mut Map<String, Value>, name: &str, change: impl FnOnce(&mut Vec<Value>)) {
        let mut section = match self {
            Self::Top => std::mem::take(config),
            Self::Sections => draft::take(config, SECTION),
        };
        let was_there = section.get(name).is_some_and(Value::is_array);
        // A section of the same name may be a map in the other layout.
        if was_there || !section.contains_key(name) {
            let mut list = draft::take_list(&mut section, name);
            change(&mut list);
            if was_there || !list.is_empty() {
                section.insert(name.to_owned(), Value::Array(list));
            }
        }
        match self {
            Self::Top => *config = section,
            Self::Sections if section.is_empty() => {}
            Self::Sections => {
                config.insert(SECTION.to_owned(), Value::Object(section));
            }
        }
    }
}
