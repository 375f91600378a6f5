//! Extracts one file of a layer in memory; the inflated size is bounded.

use std::io::{self, Read};

use flate2::read::MultiGzDecoder;
use steersman_plan::llamastack::config::base::{LAYER_FILE_LIMIT, LabelError, LayerFile};
use tar::Archive;

/// Most bytes to inflate until the file is found.
pub const INFLATED_LIMIT: u64 = 64 * 1024 * 1024;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

pub fn file(wanted: &LayerFile, blob: &[u8]) -> Result<Vec<u8>, LabelError> {
    let unreadable = |why: &str| LabelError::Unreadable {
        digest: wanted.digest.clone(),
        path: wanted.path.clone(),
        why: why.to_owned(),
    };
    if blob.starts_with(&ZSTD) {
        return Err(unreadable("the layer is compressed with zstd; push the image with gzip layers"));
    }
    let inflated: Box<dyn Read + '_> =
        if blob.starts_with(&GZIP) { Box::new(MultiGzDecoder::new(blob)) } else { Box::new(blob) };
    let broken = |error: io::Error| {
        unreadable(if error.get_ref().is_some_and(|cause| cause.is::<TooMuch>()) {
            "the layer inflates to more than 64 MiB before the file is found; put it into an image layer of its own"
        } else {
            "the layer is not a tar archive, or it is damaged"
        })
    };
    let mut archive = Archive::new(Bounded { inner: inflated, left: INFLATED_LIMIT });
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        if named(&entry.path_bytes()).as_deref() != Some(wanted.path.as_str()) {
            continue;
        }
        if !entry.header().entry_type().is_file() {
            return Err(unreadable(
                "it is not a regular file in this layer; name the layer that holds the file itself",
            ));
        }
        let bytes = usize::try_from(entry.size()).unwrap_or(usize::MAX);
        if bytes > LAYER_FILE_LIMIT {
            return Err(LabelError::FileTooLong { digest: wanted.digest.clone(), path: wanted.path.clone(), bytes });
        }
        let mut text = Vec::new();
        entry.read_to_end(&mut text).map_err(broken)?;
        return Ok(text);
    }
    Err(unreadable("the layer has no such file"))
}

/// The normalised name of an entry. None: it leads out of the layer.
fn named(path: &[u8]) -> Option<String> {
    let path = std::str::from_utf8(path).ok()?;
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    (!parts.contains(&"..")).then(|| parts.join("/"))
}

#[derive(Debug, thiserror::Error)]
#[error("too much")]
struct TooMuch;

/// Fails at the limit, so that it is not taken for the end of the archive.
struct Bounded<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(into)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| io::Error::other(TooMuch))?;
        Ok(read)
    }
}
