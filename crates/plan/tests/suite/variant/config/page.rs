//! The page of settings against what is read.

use std::collections::BTreeSet;

use steersman_plan::variant::config::{main_keys, thresholds, zero};

use super::*;

const PAGE: &str = include_str!("../../../../../../docs/variant-configuration.md");

/// The cells of the table below this heading, without its head.
fn table(heading: &str) -> Vec<Vec<String>> {
    let section = PAGE.split("\n## ").find(|section| section.lines().next() == Some(heading)).unwrap();
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let cell = |text: &str| text.trim().to_owned();
    rows.map(|row| row.trim_matches('|').split('|').map(cell).collect()).collect()
}

/// What stands between backticks.
fn code(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn names_of(rows: &[Vec<String>], column: usize) -> BTreeSet<String> {
    rows.iter().flat_map(|row| code(&row[column])).collect()
}

fn set<'a>(known: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    known.into_iter().map(str::to_owned).collect()
}

/// As the page gives it; where there is none, nothing.
fn default_of(rows: &[Vec<String>], field: &str, column: usize) -> Option<String> {
    let row = rows.iter().find(|row| code(&row[0]) == [field]).unwrap();
    code(&row[column]).into_iter().next()
}

#[test]
fn the_page_of_settings_has_every_map_key_and_variable_and_no_other() {
    let none = BTreeMap::new();
    let maps = names::main_maps(&none).into_iter().chain(names::saturation_maps(&none));
    let fixed = [names::ZERO_CAMEL, names::ZERO_SNAKE, names::COSTS, names::CLASSES];
    let variables = [names::MAIN_VARIABLE, names::SATURATION_VARIABLE];
    let known: BTreeSet<String> = maps.chain(fixed.into_iter().chain(variables).map(str::to_owned)).collect();
    assert_eq!(names_of(&table("Where settings are read"), 0), known);
    assert_eq!(names_of(&table("The main ConfigMap"), 0), set(main_keys()));
    assert_eq!(names_of(&table("Saturation"), 0), set(thresholds::FIELDS));
    let zero = table("Scale to zero");
    assert_eq!(&names_of(&zero, 0) | &names_of(&zero, 1), set(zero::FIELDS));
    assert_eq!(names_of(&table("Environment"), 0), set(names::VARIABLES));
}

#[test]
fn the_defaults_of_the_page_are_those_that_hold() {
    let empty = config(&[]);
    let main = table("The main ConfigMap");
    assert_eq!(duration::parse(&default_of(&main, "GLOBAL_OPT_INTERVAL", 1).unwrap()), Ok(empty.interval));
    let zero = table("Scale to zero");
    assert_eq!(default_of(&zero, "enableScaleToZero", 2), Some(empty.zero.enabled("ns", "m").to_string()));
    let retention = duration::parse(&default_of(&zero, "retentionPeriod", 2).unwrap());
    assert_eq!(retention, Ok(empty.zero.retention("ns", "m")));
    // As if somebody had written down what the page says, with other values below it.
    let rows = table("Saturation");
    let written = rows.iter().filter_map(|row| Some(format!("{}: {}\n", code(&row[0])[0], code(&row[1]).first()?)));
    let written: Vec<String> = written.collect();
    assert_eq!(written.len(), thresholds::FIELDS.len() - 2, "but for whom it is about: {written:?}");
    let entry: thresholds::SaturationEntry = serde_saphyr::from_str(&written.concat()).unwrap();
    let others = Thresholds {
        kv_cache: 0.5,
        queue_length: 50.0,
        kv_spare: 0.5,
        queue_spare: 0.5,
        scale_up: 0.5,
        scale_down: 0.5,
        analyzer: Analyzer::Tokens,
        limiter: true,
    };
    assert_eq!(others.with(&entry), empty.thresholds("ns", "m"));
}

#[test]
fn the_examples_of_the_page_are_read_without_a_word_against_them() {
    let blocks: Vec<&str> = PAGE.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    let mut maps = ConfigSources { maps: BTreeMap::new(), ..seen(&[]) };
    for block in blocks {
        for map in serde_saphyr::from_multiple::<serde_json::Value>(block).unwrap() {
            let data = serde_json::from_value(map["data"].clone()).unwrap();
            maps.maps.insert((SYSTEM.to_owned(), map["metadata"]["name"].as_str().unwrap().to_owned()), data);
        }
    }
    let (config, findings) = read(&maps, &Config::default());
    assert_eq!((findings, maps.maps.len(), config.sources.len()), (vec![], 4, 4));
    let granite = config.thresholds("team-b", "ibm/granite-13b");
    assert_eq!((granite.queue_length, granite.limiter), (10.0, true));
    let llama = config.thresholds("team-a", "meta-llama/Llama-3.2-1B-Instruct");
    assert_eq!(llama.kv_spare, 0.15);
    assert!(config.zero.enabled("team-a", "ibm/granite-13b") && !config.zero.enabled("team-b", "ibm/granite-13b"));
    assert_eq!((config.costs.cents.len(), config.classes.by_key.len()), (1, 1));
}
