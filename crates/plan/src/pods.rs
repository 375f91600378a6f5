//! What the kubelet's words mean, for the pods of every family.
//! Comes in: the reason for which a container waits; goes out: what kind of trouble that is.

/// Why a container waits that cannot get its image.
const PULLS: [&str; 6] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "ImageInspectError",
    "RegistryUnavailable",
];

pub fn is_pull(reason: &str) -> bool {
    PULLS.contains(&reason)
}

/// Whether a pod has no node because of a claim. Schedulers write the kind in small letters or in its own.
pub fn is_about_claim(unscheduled: &str) -> bool {
    unscheduled.to_lowercase().contains("persistentvolumeclaim")
}
