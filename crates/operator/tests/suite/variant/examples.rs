//! The examples, applied as by `kubectl apply -f`, and the documented table of replica bounds.

use std::path::PathBuf;

use super::*;

fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/variant"))
}

fn read(file: &str) -> String {
    std::fs::read_to_string(folder().join(file)).unwrap()
}

fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

#[tokio::test]
async fn example_is_accepted_or_refused_with_documented_message() {
    let Some(test) = TestNamespace::new("examples").await else { return };
    let listed = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let (mut accepted, mut rejected) = (0, 0);
    for file in listed.filter(|file| file.ends_with(".yaml")) {
        let text = read(&file);
        assert!(text.starts_with("# "), "{file} must begin with a comment on its purpose");
        let refused = text.lines().next().unwrap().strip_prefix("# refused: ");
        assert_eq!(refused.is_some(), file.contains("invalid"), "{file}");
        let applied = apply::apply_manifests(&test.admin, Some(test.namespace.name()), &text).await;
        match refused {
            None => {
                applied.unwrap_or_else(|error| panic!("{file}: {error:?}"));
                accepted += 1;
            }
            Some(words) => {
                let error = format!("{:?}", applied.expect_err(&file));
                assert!(error.contains(words), "{file}: {error}");
                rejected += 1;
            }
        }
    }
    assert!(accepted >= 3 && rejected >= 1, "{accepted} accepted, {rejected} refused");
    // The example settings must be sufficient for the example objects.
    for map in documents(&read("settings.yaml")) {
        test.set_config(map["metadata"]["name"].as_str().unwrap(), map["data"].clone()).await;
    }
    let outcome = test.reconcile().await;
    assert_eq!((outcome.decided, outcome.interval.as_secs()), (3, 30));
    for name in ["test-different-name-va", "llama-l40s", "llama-h100"] {
        let status = test.status(name).await;
        assert_eq!(condition(&status, "SpecAccepted").1, "SpecAccepted", "{status}");
        assert_eq!(condition(&status, "ConfigurationValid").0, "", "{status}");
    }
    assert_eq!(test.desired("test-different-name-va").await, Some(1));
    let absent = condition(&test.status("llama-h100").await, "TargetResolved");
    assert!(absent.2.starts_with("Scale target Deployment llama-h100-decode not found in namespace "), "{absent:?}");
}

#[tokio::test]
async fn documented_bounds_match_api_server() {
    let Some(test) = TestNamespace::new("bounds").await else { return };
    let text = read("VALIDATION_EXAMPLES.md");
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| min"));
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let mut checked = 0;
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let mut spec = spec("decode");
        for (name, cell) in [("minReplicas", cells[0]), ("maxReplicas", cells[1])] {
            if let Ok(number) = cell.parse::<i64>() {
                spec[name] = number.into();
            }
        }
        let variant: DynamicObject = object(json!({ "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
            "metadata": { "name": "bounds" }, "spec": spec }));
        match (cells[2].strip_prefix("refused: "), test.objects().create(&dry_run, &variant).await) {
            (None, answer) => drop(answer.unwrap_or_else(|error| panic!("{row}: {error}"))),
            (Some(words), Err(kube::Error::Api(status))) => {
                assert!(status.message.contains(words.trim_matches('`')), "{row}: {}", status.message);
            }
            (Some(_), answer) => panic!("{row}: {answer:?}"),
        }
        checked += 1;
    }
    assert_eq!(checked, 10);
}
