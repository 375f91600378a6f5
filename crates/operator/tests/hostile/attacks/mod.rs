//! One file for each attack.

mod accelerator_claims;
mod damaged_annotations;
mod false_exporter;
mod hostile_metrics;
mod labelled_config_maps;
mod large_objects;
mod lured_registry;
mod many_models;
mod many_objects;
mod private_config_map;
mod secret_probes;
mod settings_namespaces;
mod slow_registry;
mod slow_webhook_clients;
mod written_status;
mod yaml_bombs;
