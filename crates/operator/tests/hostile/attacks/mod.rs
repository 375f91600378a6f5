//! One file for each attack.

mod damaged_annotations;
mod many_objects;
mod private_config_map;
mod settings_namespaces;
