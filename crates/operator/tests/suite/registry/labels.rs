//! Reading the base of an image from its labels and layers.

use serde_json::json;
use steersman_plan::llamastack::config::base::{BaseSource, LAYER_FILE_LIMIT, resolve};
use steersman_plan::oci::Credentials;

use super::fake::{FakeRegistry, HOST, digest, gzip, tar};
use super::{base, config, distro, in_label};

#[tokio::test]
async fn label_base_wins_over_embedded_base() {
    let served = FakeRegistry::start().await;
    served.push("llama/starter", "1", in_label("labelled"), &[]);
    let image = format!("{HOST}/llama/starter:1");
    let labelled = served.registry().labelled(&image, &Credentials::default()).await.unwrap();
    assert_eq!(distro(&labelled), "labelled");
    assert_eq!(base(&labelled).name, image);
    let resolved = resolve(Some("starter"), labelled.base).unwrap();
    assert_eq!((resolved.source, resolved.passed_over), (BaseSource::OciLabel, None));
}

#[tokio::test]
async fn layer_file_is_found_by_either_digest() {
    let served = FakeRegistry::start().await;
    let plain = tar(&[("./etc/other.yaml", b"x"), ("./etc/config.yaml", config("layered").as_bytes())]);
    for (tag, layer) in [("gzip", gzip(&plain)), ("plain", plain.clone())] {
        for (number, named) in [digest(&layer), digest(&plain)].into_iter().enumerate() {
            let labels =
                json!({ "io.llamastack.config.layer": named, "io.llamastack.config.path": "/etc/config.yaml" });
            let tag = format!("{tag}{number}");
            served.push("a/b", &tag, labels, &[gzip(&tar(&[("big", &[0; 9000])])), layer.clone()]);
            let image = format!("{HOST}/a/b:{tag}");
            let labelled = served.registry().labelled(&image, &Credentials::default()).await.unwrap();
            assert_eq!(distro(&labelled), "layered", "{tag}");
            let requests = served.take_requests();
            assert_eq!(
                requests.iter().filter(|request| request.contains("/blobs/")).count(),
                2,
                "one layer only: {requests:?}"
            );
        }
    }
}

#[tokio::test]
async fn image_without_labels_has_no_base() {
    let served = FakeRegistry::start().await;
    served.push("a/b", "1", json!({ "maintainer": "x" }), &[]);
    served.push("a/b", "2", json!(null), &[]);
    for tag in [1, 2] {
        let labelled = served.registry().labelled(&format!("{HOST}/a/b:{tag}"), &Credentials::default()).await.unwrap();
        assert_eq!(labelled.base, Ok(None));
    }
}

#[tokio::test]
async fn image_index_prefers_amd64_then_arm64() {
    let served = FakeRegistry::start().await;
    let registry = served.registry();
    let kind = "application/vnd.oci.image.index.v1+json";
    let image = |name: &str| served.push("a/b", name, in_label(name), &[]);
    let entry = |os: &str, architecture: &str| {
        let name = format!("{os}-{architecture}");
        json!({ "digest": image(&name), "platform": { "os": os, "architecture": architecture } })
    };
    let attestation = || entry("unknown", "unknown");
    for (expected, entries) in [
        ("linux-amd64", vec![attestation(), entry("linux", "arm64"), entry("linux", "amd64")]),
        ("linux-arm64", vec![attestation(), entry("linux", "s390x"), entry("linux", "arm64")]),
        ("linux-s390x", vec![attestation(), entry("windows", "amd64"), entry("linux", "s390x")]),
    ] {
        let index = served.manifest("a/b", "multi", &json!({ "mediaType": kind, "manifests": entries }));
        let labelled = registry.labelled(&format!("{HOST}/a/b:multi"), &Credentials::default()).await.unwrap();
        assert_eq!((distro(&labelled), &labelled.digest), (expected, &index));
    }
    served.manifest("a/b", "none", &json!({ "mediaType": kind, "manifests": [attestation()] }));
    let refused = registry.labelled(&format!("{HOST}/a/b:none"), &Credentials::default()).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "registry registry.test sent an index that cannot be used: it has no image for Linux"
    );
}

#[tokio::test]
async fn digest_is_cached_and_moved_tag_noticed() {
    let served = FakeRegistry::start().await;
    let registry = served.registry();
    let (none, image) = (Credentials::default(), format!("{HOST}/a/b:latest"));
    let first = served.push("a/b", "latest", in_label("first"), &[]);
    assert_eq!(registry.labelled(&image, &none).await.unwrap().digest, first);
    assert_eq!(served.take_requests().len(), 3, "HEAD, the manifest, the configuration");
    let second_read = registry.labelled(&image, &none).await.unwrap();
    assert_eq!(distro(&second_read), "first");
    assert_eq!(served.take_requests(), ["HEAD /v2/a/b/manifests/latest"]);

    let second = served.push("a/b", "latest", in_label("second"), &[]);
    let tag_interval = registry.labelled(&image, &none).await.unwrap();
    assert_eq!((distro(&tag_interval), &tag_interval.digest), ("second", &second));
    served.take_requests();

    let pinned = registry.labelled(&format!("{HOST}/a/b:latest@{first}"), &none).await.unwrap();
    assert_eq!((distro(&pinned), &pinned.digest), ("first", &first), "the digest wins over the tag");
    assert_eq!(served.take_requests(), [format!("HEAD /v2/a/b/manifests/{first}")]);
}

#[tokio::test]
async fn concurrent_reads_share_one_request() {
    let served = FakeRegistry::start().await;
    let registry = served.registry();
    served.push("a/b", "1", in_label("x"), &[]);
    let (image, none) = (format!("{HOST}/a/b:1"), Credentials::default());
    let all = futures::future::join_all((0..20).map(|_| registry.labelled(&image, &none))).await;
    assert!(all.iter().all(|labelled| distro(labelled.as_ref().unwrap()) == "x"));
    let requests = served.take_requests();
    assert_eq!(requests.iter().filter(|request| request.starts_with("GET")).count(), 2, "{requests:?}");
}

#[tokio::test]
async fn missing_digest_header_is_tolerated() {
    let served = FakeRegistry::start().await;
    served.change(|state| state.omits_digests = true);
    let pushed = served.push("a/b", "1", in_label("x"), &[]);
    let labelled = served.registry().labelled(&format!("{HOST}/a/b:1"), &Credentials::default()).await.unwrap();
    assert_eq!((distro(&labelled), labelled.digest.as_str()), ("x", pushed.as_str()));
}

#[tokio::test]
async fn invalid_labels_fall_back_to_embedded_base() {
    let served = FakeRegistry::start().await;
    let registry = served.registry();
    let link = {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        builder.append_link(&mut header, "config.yaml", "/etc/passwd").unwrap();
        gzip(&builder.into_inner().unwrap())
    };
    let good = config("x");
    let file = |name: &str| gzip(&tar(&[(name, good.as_bytes())]));
    let long = vec![b'#'; LAYER_FILE_LIMIT + 1];
    let zstd = vec![0x28, 0xb5, 0x2f, 0xfd, 0];
    let damaged = gzip(&tar(&[("config.yaml", good.as_bytes())]))[..60].to_vec();
    for (case, layer, path, expected) in [
        ("absent", file("other.yaml"), "config.yaml", "the layer has no such file"),
        ("outside", file("../config.yaml"), "config.yaml", "the layer has no such file"),
        ("outside-deep", file("etc/../../config.yaml"), "config.yaml", "the layer has no such file"),
        ("path", file("config.yaml"), "../config.yaml", "is not the path of a file in a layer"),
        ("link", link, "config.yaml", "it is not a regular file in this layer"),
        (
            "long",
            gzip(&tar(&[("config.yaml", &long)])),
            "config.yaml",
            "has 1048577 bytes, more than the 1048576 allowed",
        ),
        ("zstd", zstd, "config.yaml", "compressed with zstd; push the image with gzip layers"),
        ("damaged", damaged, "config.yaml", "the layer is not a tar archive, or it is damaged"),
        ("text", b"hello".repeat(200), "config.yaml", "the layer is not a tar archive, or it is damaged"),
    ] {
        let labels = json!({ "io.llamastack.config.layer": digest(&layer), "io.llamastack.config.path": path });
        served.push("a/b", case, labels, &[layer]);
        let labelled = registry.labelled(&format!("{HOST}/a/b:{case}"), &Credentials::default()).await.unwrap();
        let error = labelled.base.as_ref().unwrap_err().to_string();
        assert!(error.contains(expected), "{case}: {error}");
        let resolved = resolve(Some("starter"), labelled.base).unwrap();
        assert_eq!(
            (resolved.source, resolved.passed_over.map(|passed| passed.to_string())),
            (BaseSource::Embedded, Some(error))
        );
    }
    let labels = json!({ "io.llamastack.config.layer": digest(b"other"), "io.llamastack.config.path": "config.yaml" });
    served.push("a/b", "elsewhere", labels, &[file("config.yaml")]);
    let labelled = registry.labelled(&format!("{HOST}/a/b:elsewhere"), &Credentials::default()).await.unwrap();
    assert!(labelled.base.unwrap_err().to_string().ends_with("the image has no such layer"));
}
