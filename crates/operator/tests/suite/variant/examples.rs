//! The examples, each applied as `kubectl apply -f` would, and the table of bounds as it is printed.

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
async fn each_example_is_accepted_or_refused_with_the_text_that_it_names() {
    let Some(scene) = Scene::new("examples").await else { return };
    let listed = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut judged = (0, 0);
    for file in listed.filter(|file| file.ends_with(".yaml")) {
        let text = read(&file);
        assert!(text.starts_with("# "), "{file} begins with what it is for");
        let refused = text.lines().next().unwrap().strip_prefix("# refused: ");
        assert_eq!(refused.is_some(), file.contains("invalid"), "{file}");
        let applied = apply::manifests(&scene.admin, Some(scene.namespace.name()), &text).await;
        match refused {
            None => {
                applied.unwrap_or_else(|error| panic!("{file}: {error:?}"));
                judged.0 += 1;
            }
            Some(words) => {
                let said = format!("{:?}", applied.expect_err(&file));
                assert!(said.contains(words), "{file}: {said}");
                judged.1 += 1;
            }
        }
    }
    assert!(judged.0 >= 3 && judged.1 >= 1, "{judged:?}");
    // The settings of the examples are all that a user needs to have.
    for map in documents(&read("settings.yaml")) {
        scene.set(map["metadata"]["name"].as_str().unwrap(), map["data"].clone()).await;
    }
    let passed = scene.pass().await;
    assert_eq!((passed.decided, passed.interval.as_secs()), (3, 30));
    for name in ["test-different-name-va", "llama-l40s", "llama-h100"] {
        let status = scene.status(name).await;
        assert_eq!(condition(&status, "SpecAccepted").1, "SpecAccepted", "{status}");
        assert_eq!(condition(&status, "ConfigurationValid").0, "", "{status}");
    }
    assert_eq!(scene.desired("test-different-name-va").await, Some(1));
    let absent = condition(&scene.status("llama-h100").await, "TargetResolved");
    assert!(absent.2.starts_with("Scale target Deployment llama-h100-decode not found in namespace "), "{absent:?}");
}

#[tokio::test]
async fn the_table_of_bounds_is_what_the_api_server_says() {
    let Some(scene) = Scene::new("bounds").await else { return };
    let text = read("VALIDATION_EXAMPLES.md");
    let rows = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| min"));
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let mut judged = 0;
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let mut spec = spec("decode");
        for (name, given) in [("minReplicas", cells[0]), ("maxReplicas", cells[1])] {
            if let Ok(number) = given.parse::<i64>() {
                spec[name] = number.into();
            }
        }
        let wish: DynamicObject = object(json!({ "apiVersion": "llmd.ai/v1alpha1", "kind": "VariantAutoscaling",
            "metadata": { "name": "bounds" }, "spec": spec }));
        match (cells[2].strip_prefix("refused: "), scene.objects().create(&dry_run, &wish).await) {
            (None, answer) => drop(answer.unwrap_or_else(|error| panic!("{row}: {error}"))),
            (Some(words), Err(kube::Error::Api(status))) => {
                assert!(status.message.contains(words.trim_matches('`')), "{row}: {}", status.message);
            }
            (Some(_), answer) => panic!("{row}: {answer:?}"),
        }
        judged += 1;
    }
    assert_eq!(judged, 10);
}
