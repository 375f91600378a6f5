//! The rules speak of v1beta1; whoever writes v1alpha1 is told the places of v1alpha1.
//! Comes in: a text with places in it; goes out: the same text for the version that its reader wrote.

use crate::webhooks::places::in_older;

/// Where a field of v1beta1 stands in v1alpha1; the longer a place, the earlier it stands.
const SAME: [(&str, &str); 21] = [
    ("spec.overrides.profilingJob.template.spec.tolerations", "spec.profilingConfig.tolerations"),
    ("spec.overrides.profilingJob.template.spec.nodeSelector", "spec.profilingConfig.nodeSelector"),
    ("spec.modelCache.pvcName", "spec.profilingConfig.config.deployment.modelCache.pvcName"),
    ("spec.modelCache.pvcModelPath", "spec.profilingConfig.config.deployment.modelCache.modelPathInPvc"),
    ("spec.modelCache.pvcMountPath", "spec.profilingConfig.config.deployment.modelCache.pvcMountPath"),
    ("spec.features.mocker.enabled", "spec.useMocker"),
    ("spec.features.planner", "spec.profilingConfig.config.planner"),
    ("spec.sla.optimizationType", "spec.profilingConfig.config.sla.optimizationType"),
    ("spec.sla.ttft", "spec.profilingConfig.config.sla.ttft"),
    ("spec.sla.itl", "spec.profilingConfig.config.sla.itl"),
    ("spec.workload.isl", "spec.profilingConfig.config.sla.isl"),
    ("spec.workload.osl", "spec.profilingConfig.config.sla.osl"),
    ("spec.image", "spec.profilingConfig.profilerImage"),
    ("spec.runtimeVersionOverride", "spec.runtimeVersionOverride"),
    ("spec.autoApply", "spec.autoApply"),
    ("spec.backend", "spec.backend"),
    ("spec.model", "spec.model"),
    // Told of older requests alone, and only v1alpha1 has them.
    ("spec.deploymentOverrides", "spec.deploymentOverrides"),
    ("spec.profilingConfig", "spec.profilingConfig"),
    ("spec.enableGpuDiscovery", "spec.enableGpuDiscovery"),
    ("spec.useMocker", "spec.useMocker"),
];

/// What v1beta1 keeps in annotations.
const KEPT: [(&str, &str); 2] = [
    ("metadata.annotations[nvidia.com/dgdr-config-map-ref]", "spec.profilingConfig.configMapRef"),
    ("metadata.annotations[nvidia.com/dgdr-output-pvc]", "spec.profilingConfig.outputPVC"),
];

pub fn words(text: &str, version: &str) -> String {
    if version != "v1alpha1" {
        return text.to_owned();
    }
    KEPT.iter().fold(in_older(text, &SAME, "v1beta1"), |text, (newer, older)| text.replace(newer, older))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use steersman_api::convert::convert;

    use super::*;

    #[test]
    fn an_author_is_told_places_of_the_version_that_was_written() {
        let said =
            "spec.runtimeVersionOverride: Required value: is required when spec.image has no tag. Set spec.hardware.";
        assert_eq!(words(said, "v1beta1"), said);
        assert_eq!(
            words(said, "v1alpha1"),
            "spec.runtimeVersionOverride: Required value: is required when spec.profilingConfig.profilerImage has no tag. \
             Set spec.hardware (of v1beta1)."
        );
        assert_eq!(
            words("metadata.annotations[nvidia.com/dgdr-config-map-ref]: it is mounted", "v1alpha1"),
            "spec.profilingConfig.configMapRef: it is mounted"
        );
    }

    /// The table against the converter: what stands at the older place comes out at the newer.
    #[test]
    fn every_pair_of_places_is_one_field() {
        for (newer, older) in SAME.into_iter().filter(|(newer, older)| newer != older) {
            let value = match newer.rsplit('.').next().unwrap() {
                "enabled" => json!(true),
                "tolerations" => json!([{ "key": "gpu" }]),
                "nodeSelector" | "planner" => json!({ "a": "b" }),
                "ttft" | "itl" | "isl" | "osl" => json!(3),
                "optimizationType" => json!("latency"),
                _ => json!("name"),
            };
            let put = |place: &str| place.split('.').rev().fold(value.clone(), |inner, key| json!({ key: inner }));
            let mut object = put(older);
            object["apiVersion"] = json!("nvidia.com/v1alpha1");
            object["kind"] = json!("DynamoGraphDeploymentRequest");
            object["metadata"] = json!({});
            let converted = convert(object, "nvidia.com/v1beta1").unwrap().object;
            let at: &Value = newer.split('.').fold(&converted, |value, key| &value[key]);
            assert_eq!(*at, value, "{older} is {newer}");
        }
    }
}
