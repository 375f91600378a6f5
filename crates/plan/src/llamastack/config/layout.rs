//! The two layouts of the file: servers before 0.3 have resources and stores at the top level, later ones in sections.

use serde_json::{Map, Value};

use super::draft::{self, Draft};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// `metadata_store`, `inference_store` and `models` at the top level.
    Top,
    /// `storage` and `registered_resources`.
    Sections,
}

const SECTION: &str = "registered_resources";

impl Layout {
    /// Decides by the sections present, then by the server's version, then by the old keys present.
    pub fn of(draft: &Draft<'_>) -> Self {
        let has = |key: &str| draft.config.contains_key(key);
        let old = ["metadata_store", "inference_store", "models", "shields", "tool_groups"];
        let sections = has("storage") || has(SECTION);
        let top = draft.base.is_some()
            && !sections
            && if draft.server.known() { draft.server.before(0, 3) } else { old.into_iter().any(has) };
        if top { Self::Top } else { Self::Sections }
    }

    /// Changes one list of resources. An empty list is not added.
    pub fn change(self, config: &mut Map<String, Value>, name: &str, change: impl FnOnce(&mut Vec<Value>)) {
        let mut section = match self {
            Self::Top => std::mem::take(config),
            Self::Sections => draft::take(config, SECTION),
        };
        let was_there = section.get(name).is_some_and(Value::is_array);
        // The other layout may have a map of the same name.
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
